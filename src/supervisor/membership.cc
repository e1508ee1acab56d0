#include "supervisor/membership.h"

#include <algorithm>
#include <cmath>

namespace trireme::supervisor {
namespace {

constexpr int kMostDoublings = 10;

}  // namespace

Membership::Membership(MembershipPolicy policy) : policy_(policy) {}

Membership::Member* Membership::find(const std::string& host) {
  const auto found = std::ranges::find_if(members_, [&](const Member& member) { return member.host.name == host; });
  return found == members_.end() ? nullptr : &*found;
}

void Membership::list(const std::vector<Host>& hosts) {
  std::vector<Member> members;
  for (const Host& host : hosts) {
    Member* known = find(host.name);
    Member member = known != nullptr ? *known : Member{};
    member.host = host;
    members.push_back(std::move(member));
  }
  members_ = std::move(members);
}

bool Membership::is_listed(const std::string& host) const {
  return std::ranges::any_of(members_, [&](const Member& member) { return member.host.name == host; });
}

bool Membership::is_out(const std::string& host) const {
  return std::ranges::any_of(members_, [&](const Member& member) { return member.host.name == host && member.out; });
}

bool Membership::failed(const std::string& host, Seconds now) {
  Member* member = find(host);
  if (member == nullptr) return false;
  member->failures.push_back(now);
  while (now.count - member->failures.front().count > policy_.forgive.count) member->failures.pop_front();
  return std::ssize(member->failures) >= policy_.host_failures;
}

Seconds Membership::cooldown_of(const Member& member) const {
  return {policy_.cooldown.count * std::exp2(std::clamp(member.times_out - 1, 0, kMostDoublings))};
}

void Membership::leave_out(const std::string& host, Seconds now) {
  Member* member = find(host);
  if (member == nullptr || member->out) return;
  member->out = true;
  member->probing = false;
  member->failures.clear();
  ++member->times_out;
  member->probe_at = {now.count + cooldown_of(*member).count};
}

void Membership::mark_away(const std::string& host) {
  if (Member* member = find(host)) member->away = true;
}

bool Membership::bring_back_those_present() {
  bool any = false;
  for (Member& member : members_) {
    if (!member.out || member.away) continue;
    member.out = false;
    any = true;
  }
  return any;
}

std::vector<Host> Membership::available() const {
  std::vector<Host> hosts;
  int places = 0;
  for (const Member& member : members_) {
    if (member.host.spare) continue;
    if (member.out) {
      ++places;
    } else {
      hosts.push_back(member.host);
    }
  }
  for (const Member& member : members_) {
    if (!member.host.spare || member.out || places == 0) continue;
    hosts.push_back(member.host);
    hosts.back().spare = false;
    --places;
  }
  return hosts;
}

std::vector<Host> Membership::all_present() const {
  std::vector<Host> hosts;
  for (const Member& member : members_) {
    if (member.out) continue;
    hosts.push_back(member.host);
    hosts.back().spare = false;
  }
  return hosts;
}

std::optional<Seconds> Membership::next_probe() const {
  std::optional<Seconds> next;
  for (const Member& member : members_) {
    if (!member.out || member.probing) continue;
    if (!next || member.probe_at.count < next->count) next = member.probe_at;
  }
  return next;
}

std::vector<std::string> Membership::take_due_probes(Seconds now) {
  std::vector<std::string> due;
  for (Member& member : members_) {
    if (!member.out || member.probing || member.probe_at.count > now.count) continue;
    member.probing = true;
    due.push_back(member.host.name);
  }
  return due;
}

void Membership::probed(const std::string& host, bool ok, Seconds now) {
  Member* member = find(host);
  if (member == nullptr || !member->out) return;
  member->probing = false;
  if (ok) {
    member->out = member->away = false;
  } else {
    member->probe_at = {now.count + cooldown_of(*member).count};
  }
}

}  // namespace trireme::supervisor
