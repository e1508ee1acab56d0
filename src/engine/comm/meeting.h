#pragma once

// The shared state of a ThreadWorld: where ranks meet. Everything is guarded by one mutex a world; data are copied
// outside of it.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "engine/comm/call.h"
#include "engine/comm/communicator.h"

namespace trireme::comm {

class Group;

class World {
 public:
  World(int ranks, Seconds deadline) : ranks_(ranks), deadline_(deadline) {}

  // The group that `world_rank` joins next under this name, and its index there.
  std::pair<std::shared_ptr<Group>, int> join(const GroupName& name, int world_rank);
  void report_lost(int world_rank, const std::string& reason);

 private:
  friend class Group;
  // With the mutex held.
  void die(Death death);

  const int ranks_;
  const Seconds deadline_;
  std::mutex mutex_;
  std::unique_ptr<const Death> death_;  // null while alive
  std::map<std::pair<std::string, std::vector<int>>, std::vector<std::shared_ptr<Group>>> groups_;
};

// A message between its post and its arrival.
struct Transfer {
  Call call;
  int peer = 0;  // index in the group
  enum class State { kPosted, kCopying, kDone } state = State::kPosted;
  Clock::time_point completed_at = {};
};

class Group {
 public:
  Group(World& world, GroupName name);

  const GroupName& name() const { return name_; }
  int size() const { return static_cast<int>(name_.ranks.size()); }

  // Collectives. meet() returns when all ranks of the group have called it with calls that agree; calls() then holds
  // them all, by index. Between meet() and leave() ranks read each other's data; pass() is a barrier there. Past the
  // deadline, pass() and leave() end the world as every wait does, but they stay: whoever has met has only copies left
  // to do, and a rank that left would free memory that its peers are reading.
  void meet(int index, const Call& call);
  const std::vector<Call>& calls() const { return calls_; }
  void pass();
  void leave();

  // Messages. post() starts one; wait() ends it, or throws; then the peer will not touch the data any more.
  std::shared_ptr<Transfer> post(int index, int peer, const Call& call);
  bool done(const Transfer& transfer);
  Clock::time_point completed_at(const Transfer& transfer);
  void wait(int index, const std::shared_ptr<Transfer>& transfer);

 private:
  friend class World;
  using Lock = std::unique_lock<std::mutex>;
  using Channel = std::deque<std::shared_ptr<Transfer>>;

  std::string operation_text(const Call& call) const;
  std::string who(int index) const;
  std::string attendance() const;
  Channel& channel(int index, const Transfer& transfer);
  void check_alive(const Call& call) const;
  [[noreturn]] void disagree(int a, const Call& a_call, int b, const Call& b_call);
  template <class Ready>
  bool wait_in_time(Lock& lock, Ready&& ready);
  template <class Ready>
  void wait_for_copies(Lock& lock, Ready&& ready);
  void pass_locked(Lock& lock, bool last_of_meeting);

  World& world_;
  const GroupName name_;
  std::condition_variable changed_;
  std::vector<bool> joined_;

  std::vector<Call> calls_;
  std::vector<bool> arrived_;
  int arrived_count_ = 0;
  std::int64_t meetings_ = 0;  // held so far
  int passed_count_ = 0;
  std::int64_t passes_ = 0;

  std::map<std::pair<int, int>, Channel> channels_;  // from, to: unmatched sends, or unmatched receives
};

}  // namespace trireme::comm
