#include "engine/comm/meeting.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include <fmt/format.h>

#include "base/check.h"

namespace trireme::comm {

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

// The first death counts.
void World::die(Death death) {
  if (death_) return;
  death_ = std::make_unique<const Death>(std::move(death));
  for (const auto& [name, groups] : groups_) {
    for (const auto& group : groups) group->changed_.notify_all();
  }
}

Group::Group(World& world, GroupName name)
    : world_(world),
      name_(std::move(name)),
      joined_(name_.ranks.size()),
      calls_(name_.ranks.size()),
      arrived_(name_.ranks.size()) {}

std::string Group::operation_text(const Call& call) const { return fmt::format("{} over {}", call.text(), name_.axis); }

std::string Group::who(int index) const { return fmt::format("rank {}", name_.ranks[static_cast<std::size_t>(index)]); }

// "arrived: 0, 2; missing: 1"
std::string Group::attendance() const {
  std::string arrived;
  std::string missing;
  for (std::size_t i = 0; i < arrived_.size(); ++i) {
    std::string& list = arrived_[i] ? arrived : missing;
    list += fmt::format("{}{}", list.empty() ? "" : ", ", name_.ranks[i]);
  }
  return fmt::format("arrived: {}; missing: {}", arrived, missing);
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

// Waits for ready(), the world's end or the deadline. False if the deadline has passed and neither has come.
template <class Ready>
bool Group::wait_in_time(Lock& lock, Ready&& ready) {
  return changed_.wait_for(lock, std::chrono::duration<double>(world_.deadline_.count),
                           [&] { return ready() || world_.death_ != nullptr; });
}

// Waits for peers that are copying. A late one ends the world, but not the wait.
template <class Ready>
void Group::wait_for_copies(Lock& lock, Ready&& ready) {
  while (!changed_.wait_for(lock, std::chrono::duration<double>(world_.deadline_.count), ready)) {
    world_.die(
        {ExitCode::kHang, "copy over " + name_.axis,
         fmt::format("all ranks have met, but a copy has not ended after {}", format_seconds(world_.deadline_))});
  }
}

void Group::meet(int index, const Call& call) {
  Lock lock(world_.mutex_);
  check_alive(call);
  const auto self = static_cast<std::size_t>(index);
  TRIREME_CHECK(!arrived_[self], "{} is in two operations over {} at once", who(index), name_.axis);
  for (std::size_t i = 0; i < calls_.size(); ++i) {
    if (arrived_[i] && !calls_[i].agrees_with(call)) disagree(static_cast<int>(i), calls_[i], index, call);
  }
  calls_[self] = call;
  arrived_[self] = true;
  const std::int64_t meeting = meetings_;
  if (++arrived_count_ == size()) {
    ++meetings_;
    changed_.notify_all();
    return;
  }
  const bool in_time = wait_in_time(lock, [&] { return meetings_ != meeting; });
  if (meetings_ != meeting) return;  // also if the world ended meanwhile: the peers have begun to read
  if (!in_time) {
    world_.die({ExitCode::kHang, operation_text(call),
                fmt::format("waited {}; ranks {}", format_seconds(world_.deadline_), attendance())});
  }
  world_.death_->throw_first_error();
}

void Group::pass() {
  Lock lock(world_.mutex_);
  pass_locked(lock, false);
}

void Group::leave() {
  Lock lock(world_.mutex_);
  pass_locked(lock, true);
}

void Group::pass_locked(Lock& lock, bool last_of_meeting) {
  const std::int64_t pass = passes_;
  if (++passed_count_ < size()) {
    wait_for_copies(lock, [&] { return passes_ != pass; });
    return;
  }
  passed_count_ = 0;
  ++passes_;
  if (last_of_meeting) {
    arrived_.assign(arrived_.size(), false);
    arrived_count_ = 0;
  }
  changed_.notify_all();
}

Group::Channel& Group::channel(int index, const Transfer& transfer) {
  const bool sends = transfer.call.operation == Operation::kSend;
  return channels_[sends ? std::pair(index, transfer.peer) : std::pair(transfer.peer, index)];
}

std::shared_ptr<Transfer> Group::post(int index, int peer, const Call& call) {
  auto own = std::make_shared<Transfer>(Transfer{.call = call, .peer = peer});
  Lock lock(world_.mutex_);
  check_alive(call);
  Channel& waiting = channel(index, *own);
  if (waiting.empty() || waiting.front()->call.operation == call.operation) {
    waiting.push_back(own);
    return own;
  }
  const std::shared_ptr<Transfer> other = waiting.front();
  if (other->call.count != call.count || other->call.dtype != call.dtype) disagree(peer, other->call, index, call);
  waiting.pop_front();
  own->state = Transfer::State::kCopying;
  other->state = Transfer::State::kCopying;
  lock.unlock();
  const bool sends = call.operation == Operation::kSend;
  const auto bytes = static_cast<std::size_t>(call.count * dtype_size(call.dtype));
  if (bytes > 0) std::memcpy(sends ? other->call.data : call.data, sends ? call.data : other->call.data, bytes);
  lock.lock();
  for (Transfer* transfer : {own.get(), other.get()}) {
    transfer->state = Transfer::State::kDone;
    transfer->completed_at = Clock::now();
  }
  changed_.notify_all();
  return own;
}

bool Group::done(const Transfer& transfer) {
  const Lock lock(world_.mutex_);
  if (transfer.state == Transfer::State::kDone) return true;
  check_alive(transfer.call);
  return false;
}

Clock::time_point Group::completed_at(const Transfer& transfer) {
  const Lock lock(world_.mutex_);
  return transfer.completed_at;
}

void Group::wait(int index, const std::shared_ptr<Transfer>& transfer) {
  using State = Transfer::State;
  Lock lock(world_.mutex_);
  const bool was_dead = world_.death_ != nullptr;
  const bool in_time = wait_in_time(lock, [&] { return transfer->state != State::kPosted; });
  if (transfer->state != State::kPosted) {
    wait_for_copies(lock, [&] { return transfer->state == State::kDone; });
    return;
  }
  Channel& waiting = channel(index, *transfer);
  waiting.erase(std::remove(waiting.begin(), waiting.end(), transfer), waiting.end());
  if (was_dead) world_.death_->throw_dead(operation_text(transfer->call));
  if (!in_time) {
    const std::string peer_operation = transfer->call.operation == Operation::kSend ? "receive" : "send";
    world_.die({ExitCode::kHang, operation_text(transfer->call),
                fmt::format("{} waited {} for the {} of {}", who(index), format_seconds(world_.deadline_),
                            peer_operation, who(transfer->peer))});
  }
  world_.death_->throw_first_error();
}

}  // namespace trireme::comm
