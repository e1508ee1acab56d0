#pragma once

// Which of the listed hosts a run may use now. Pure.

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "supervisor/hosts.h"

namespace trireme::supervisor {

struct MembershipPolicy {
  int host_failures = 2;  // of one host, that leave it out
  Seconds forgive{3600};  // after which one of them no longer counts
  Seconds cooldown{600};  // before a host that was left out is probed; doubles each time that it was left out
};

class Membership {
 public:
  explicit Membership(MembershipPolicy policy);

  // The list, anew. A host that was not in the last one counts as fresh, whatever it did before.
  void list(const std::vector<Host>& hosts);
  bool is_listed(const std::string& host) const;
  bool is_out(const std::string& host) const;  // listed, and left out

  // A failure of a host; true: it has failed too often.
  bool failed(const std::string& host, Seconds now);
  // Not used from now on, until a probe finds it well after its cooldown or it is listed anew.
  void leave_out(const std::string& host, Seconds now);
  // A host that is left out but for what it did, not for being away, is better than none.
  bool bring_back_those_present();
  void mark_away(const std::string& host);  // it is silent, not just failing

  // Those that may be used: every listed host that is not left out, in the list's order, with the first fit spares in
  // the places of those that are; spares that take no place are not among them.
  std::vector<Host> available() const;

  std::vector<Host> all_present() const;  // every listed host that is not left out, spares too

  std::optional<Seconds> next_probe() const;
  std::vector<std::string> take_due_probes(Seconds now);
  void probed(const std::string& host, bool ok, Seconds now);

 private:
  struct Member {
    Host host;
    std::deque<Seconds> failures;
    bool out = false;
    bool away = false;
    int times_out = 0;
    Seconds probe_at;
    bool probing = false;
  };
  Member* find(const std::string& host);
  Seconds cooldown_of(const Member& member) const;

  MembershipPolicy policy_;
  std::vector<Member> members_;
};

}  // namespace trireme::supervisor
