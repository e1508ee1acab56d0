#include "engine/comm/thread_group.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include <fmt/format.h>

#include "base/check.h"
#include "base/wait_clock.h"
#include "engine/comm/segments.h"

namespace trireme::comm {
namespace {

// How long a rank that waits looks again and again before it sleeps: a few times what a wake-up costs.
constexpr std::chrono::microseconds kSpin{40};
constexpr Seconds kBetweenLooks{0.25};  // at the clock

std::chrono::duration<double> duration_of(Seconds seconds) { return std::chrono::duration<double>(seconds.count); }

}  // namespace

World::World(int ranks, Seconds deadline)
    : ranks_(ranks), spins_(static_cast<int>(std::thread::hardware_concurrency()) >= ranks), deadline_(deadline) {}

std::pair<std::shared_ptr<Group>, int> World::join(const GroupName& name, int world_rank) {
  const auto place = std::find(name.ranks.begin(), name.ranks.end(), world_rank);
  TRIREME_CHECK(place != name.ranks.end(), "rank {} is not in its own group over {}", world_rank, name.axis);
  for (std::size_t i = 0; i < name.ranks.size(); ++i) {
    const int rank = name.ranks[i];
    TRIREME_CHECK(rank >= 0 && rank < ranks_, "rank {} of a world of {}", rank, ranks_);
    TRIREME_CHECK(std::count(name.ranks.begin(), name.ranks.end(), rank) == 1, "rank {} twice over {}", rank,
                  name.axis);
  }
  const auto index = static_cast<std::size_t>(place - name.ranks.begin());
  const std::lock_guard lock(mutex_);
  auto& groups = groups_[{name.axis, name.ranks}];
  auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return !g->joined_[index]; });
  if (group == groups.end()) group = groups.insert(groups.end(), std::make_shared<Group>(*this, name));
  (*group)->joined_[index] = true;
  return {*group, static_cast<int>(index)};
}

void World::report_lost(int world_rank, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  die({ExitCode::kRankLost, "wait", fmt::format("rank {} was lost: {}", world_rank, reason)});
}

void World::set_deadline(Seconds deadline) {
  const std::lock_guard lock(mutex_);
  deadline_ = deadline;
}

// The first death counts.
void World::die(Death death) {
  if (death_) return;
  death_ = std::make_unique<const Death>(std::move(death));
  for (const auto& [name, groups] : groups_) {
    for (const auto& group : groups) group->notify();
  }
}

Group::Group(World& world, GroupName name)
    : world_(world), name_(std::move(name)), joined_(name_.ranks.size()), posted_(name_.ranks.size()) {}

std::string Group::operation_text(const Call& call) const { return fmt::format("{} over {}", call.text(), name_.axis); }

std::string Group::who(int index) const { return fmt::format("rank {}", name_.ranks[static_cast<std::size_t>(index)]); }

// "arrived: 0, 2; missing: 1"
std::string Group::attendance(const Exchange& exchange) const {
  std::string arrived;
  std::string missing;
  for (std::size_t i = 0; i < exchange.arrived.size(); ++i) {
    std::string& list = exchange.arrived[i] ? arrived : missing;
    list += fmt::format("{}{}", list.empty() ? "" : ", ", name_.ranks[i]);
  }
  return fmt::format("arrived: {}; missing: {}", arrived, missing);
}

// What a wait dies of.
Death Group::late(const Post& post, Seconds deadline) const {
  const std::string waited = format_seconds(deadline);
  if (post.exchange->missing == 0) {
    return {ExitCode::kHang, "copy over " + name_.axis,
            fmt::format("all ranks have met, but a copy has not ended after {}", waited)};
  }
  const bool sends = post.call.operation == Operation::kSend;
  if (sends || post.call.operation == Operation::kReceive) {
    return {ExitCode::kHang, operation_text(post.call),
            fmt::format("{} waited {} for the {} of {}", who(post.index), waited, sends ? "receive" : "send",
                        who(post.peer))};
  }
  return {ExitCode::kHang, operation_text(post.call),
          fmt::format("waited {}; ranks {}", waited, attendance(*post.exchange))};
}

void Group::check_alive(const Call& call) const {
  if (world_.death_) world_.death_->throw_dead(operation_text(call));
}

// Ends the world: the two calls cannot be one operation.
void Group::disagree(int a, const Call& a_call, int b, const Call& b_call) {
  world_.die({ExitCode::kInternal, operation_text(b_call),
              fmt::format("ranks disagree: {} calls {}, {} calls {}", who(a), a_call.text(), who(b), b_call.text())});
  world_.death_->throw_first_error();
}

void Group::notify() {
  ++changes_;
  changed_.notify_all();
}

Post Group::post_collective(int index, const Call& call) {
  Lock lock(world_.mutex_);
  check_alive(call);
  const auto self = static_cast<std::size_t>(index);
  const auto number = static_cast<std::size_t>(posted_[self] - met_);
  if (number == gathering_.size()) {
    gathering_.push_back(std::make_shared<Exchange>(
        Exchange{.call = call, .data = std::vector<std::byte*>(name_.ranks.size()), .arrived = {}, .missing = size()}));
    gathering_.back()->arrived.resize(name_.ranks.size());
  }
  const std::shared_ptr<Exchange> exchange = gathering_[number];
  if (!exchange->call.agrees_with(call)) {
    const auto first = std::find(exchange->arrived.begin(), exchange->arrived.end(), true);
    disagree(static_cast<int>(first - exchange->arrived.begin()), exchange->call, index, call);
  }
  ++posted_[self];
  if (exchange->missing == 1) {  // numbers of all ranks pass this one: it is the first that is gathering
    gathering_.pop_front();
    ++met_;
  }
  arrive(lock, exchange, index, self, call);
  return {.exchange = exchange, .call = call, .index = index};
}

Post Group::post_message(int index, int peer, const Call& call) {
  const bool sends = call.operation == Operation::kSend;
  Lock lock(world_.mutex_);
  check_alive(call);
  Queue& waiting = channels_[sends ? std::pair(index, peer) : std::pair(peer, index)];
  if (waiting.empty() || waiting.front()->call.operation == call.operation) {
    waiting.push_back(std::make_shared<Exchange>(Exchange{.call = call,
                                                          .data = std::vector<std::byte*>(2),
                                                          .arrived = std::vector<bool>(name_.ranks.size()),
                                                          .missing = 2}));
    arrive(lock, waiting.back(), index, sends ? 0 : 1, call);
    return {.exchange = waiting.back(), .call = call, .index = index, .peer = peer};
  }
  const std::shared_ptr<Exchange> exchange = waiting.front();
  if (exchange->call.count != call.count || exchange->call.dtype != call.dtype) {
    disagree(peer, exchange->call, index, call);
  }
  waiting.pop_front();
  arrive(lock, exchange, index, sends ? 0 : 1, call);
  return {.exchange = exchange, .call = call, .index = index, .peer = peer};
}

void Group::arrive(Lock& lock, const std::shared_ptr<Exchange>& exchange, int index, std::size_t place,
                   const Call& call) {
  exchange->data[place] = call.data;
  exchange->arrived[static_cast<std::size_t>(index)] = true;
  if (--exchange->missing > 0) return;
  exchange->segments = segments_of(call, static_cast<int>(exchange->data.size()));
  if (exchange->segments > 0 && call.count * dtype_size(call.dtype) > kSegmentBytes) {
    moving_.push_back(exchange);
    return notify();
  }
  exchange->claimed = exchange->segments;
  if (exchange->segments > 0) {
    lock.unlock();
    for (std::int64_t number = 0; number < exchange->segments; ++number) {
      work_on_segment(exchange->call, exchange->data, number);
    }
    lock.lock();
  }
  exchange->finished = exchange->segments;
  exchange->completed_at = Clock::now();
  notify();
}

std::optional<Claim> Group::claim() {
  const Lock lock(world_.mutex_);
  return claim_locked();
}

std::optional<Claim> Group::claim_locked() {
  if (moving_.empty() || world_.death_) return std::nullopt;
  Claim claim{moving_.front(), moving_.front()->claimed++};
  if (claim.exchange->claimed == claim.exchange->segments) moving_.pop_front();
  return claim;
}

void Group::finish(const Claim& claim) {
  const Lock lock(world_.mutex_);
  finish_locked(claim);
}

void Group::finish_locked(const Claim& claim) {
  Exchange& exchange = *claim.exchange;
  ++exchange.finished;
  if (exchange.complete()) exchange.completed_at = Clock::now();
  const bool last_of_dead = world_.death_ != nullptr && exchange.finished == exchange.claimed;
  if (exchange.complete() || last_of_dead) notify();
}

// False if there is none to begin.
bool Group::do_one_segment(Lock& lock) {
  const std::optional<Claim> claim = claim_locked();
  if (!claim) return false;
  lock.unlock();
  work_on_segment(claim->exchange->call, claim->exchange->data, claim->number);
  lock.lock();
  finish_locked(*claim);
  return true;
}

void Group::progress() {
  Lock lock(world_.mutex_);
  if (world_.death_) world_.death_->throw_dead("progress over " + name_.axis);
  while (do_one_segment(lock)) {
  }
}

bool Group::done(const Post& post) {
  Lock lock(world_.mutex_);
  while (!post.exchange->complete() && do_one_segment(lock)) {
  }
  if (post.exchange->complete()) return true;
  check_alive(post.call);
  return false;
}

Clock::time_point Group::completed_at(const Post& post) {
  const Lock lock(world_.mutex_);
  return post.exchange->completed_at;
}

// Waits for ready() or the deadline, whichever comes first; false if the latter.
template <class Ready>
bool Group::wait_in_time(Lock& lock, Seconds deadline, const Ready& ready) {
  if (ready()) return true;
  if (world_.spins_) {
    const std::int64_t seen = changes_;
    lock.unlock();
    const Clock::time_point until = Clock::now() + kSpin;
    while (changes_ == seen && Clock::now() < until) std::this_thread::yield();
    lock.lock();
  }
  WaitClock clock(on_the_clock(Clock::now()));
  for (Seconds left = deadline; left.count > 0;
       left.count = deadline.count - clock.look(on_the_clock(Clock::now())).count) {
    if (changed_.wait_for(lock, duration_of(std::min(left, kBetweenLooks)), ready)) return true;
  }
  return ready();
}

void Group::wait(const Post& post) {
  const Exchange& exchange = *post.exchange;
  Lock lock(world_.mutex_);
  const bool was_dead = world_.death_ != nullptr;
  const Seconds deadline = world_.deadline_;
  while (!exchange.complete() && !world_.death_) {
    if (do_one_segment(lock)) continue;
    const auto over = [&] { return exchange.complete() || !moving_.empty() || world_.death_ != nullptr; };
    if (!wait_in_time(lock, deadline, over)) world_.die(late(post, deadline));
  }
  const auto untouched = [&] { return exchange.finished == exchange.claimed; };
  while (!wait_in_time(lock, deadline, untouched)) world_.die(late(post, deadline));
  if (exchange.complete()) return;
  if (was_dead) world_.death_->throw_dead(operation_text(post.call));
  world_.death_->throw_first_error();
}

}  // namespace trireme::comm
