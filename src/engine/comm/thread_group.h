#pragma once

// The shared state of a ThreadWorld: groups, and the exchanges of each, from their first post until their data have
// moved. Everything is guarded by one mutex a world; data are read and written outside of it.
//
// Whoever finds segments to do does them (segments.h): a rank that waits moves the data of all, so an exchange that all
// ranks have posted needs only one of them to look at its group. What is no longer than a segment does not need even
// that: the rank that posts last does it at once. Once the world is dead no segment is begun any more; a wait that ends
// so ends after those that others are at.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
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
  World(int ranks, Seconds deadline);

  // The group that `world_rank` joins next under this name, and its index there.
  std::pair<std::shared_ptr<Group>, int> join(const GroupName& name, int world_rank);
  void report_lost(int world_rank, const std::string& reason);
  void set_deadline(Seconds deadline);

 private:
  friend class Group;
  // With the mutex held.
  void die(Death death);

  const int ranks_;
  const bool spins_;  // there is a core for every rank
  std::mutex mutex_;
  Seconds deadline_;
  std::unique_ptr<const Death> death_;  // null while alive
  std::map<std::pair<std::string, std::vector<int>>, std::vector<std::shared_ptr<Group>>> groups_;
};

// A collective of a group, or a message between two of its ranks.
struct Exchange {
  Call call;                     // of the rank that came first; its data are not used
  std::vector<std::byte*> data;  // by index in the group; of a message: the sender's, the receiver's
  std::vector<bool> arrived;     // by index in the group
  int missing = 0;               // ranks

  // Once none is missing.
  std::int64_t segments = 0;
  std::int64_t claimed = 0;  // of them: somebody does them or has done them
  std::int64_t finished = 0;
  Clock::time_point completed_at = {};

  bool complete() const { return missing == 0 && finished == segments; }
};

// One rank's part in an exchange.
struct Post {
  std::shared_ptr<Exchange> exchange;
  Call call;
  int index = 0;  // in the group
  int peer = 0;   // of a message
};

// A segment that one thread does, then finishes.
struct Claim {
  std::shared_ptr<Exchange> exchange;
  std::int64_t number = 0;
};

class Group {
 public:
  Group(World& world, GroupName name);

  const GroupName& name() const { return name_; }
  int size() const { return static_cast<int>(name_.ranks.size()); }

  // The k-th collective that each rank posts is one exchange; their calls must agree. Messages between two ranks meet
  // in their order.
  Post post_collective(int index, const Call& call);
  Post post_message(int index, int peer, const Call& call);

  // Do segments, of any exchange of the group. done() and progress() until there are none to begin; wait() until the
  // exchange is complete, blocking when there are none, or throws; then nobody touches its data any more.
  bool done(const Post& post);
  void wait(const Post& post);
  void progress();
  Clock::time_point completed_at(const Post& post);

  // One segment of the oldest exchange that has any to begin; nothing if the world is dead.
  std::optional<Claim> claim();
  void finish(const Claim& claim);

 private:
  friend class World;
  using Lock = std::unique_lock<std::mutex>;
  using Queue = std::deque<std::shared_ptr<Exchange>>;

  std::string operation_text(const Call& call) const;
  std::string who(int index) const;
  std::string attendance(const Exchange& exchange) const;
  Death late(const Post& post, Seconds deadline) const;
  void check_alive(const Call& call) const;
  [[noreturn]] void disagree(int a, const Call& a_call, int b, const Call& b_call);
  // With the mutex held. arrive() and do_one_segment() work without it.
  void arrive(Lock& lock, const std::shared_ptr<Exchange>& exchange, int index, std::size_t place, const Call& call);
  std::optional<Claim> claim_locked();
  void finish_locked(const Claim& claim);
  bool do_one_segment(Lock& lock);
  void notify();
  template <class Ready>
  bool wait_in_time(Lock& lock, Seconds deadline, const Ready& ready);

  World& world_;
  const GroupName name_;
  std::condition_variable changed_;
  std::atomic<std::int64_t> changes_ = 0;  // counts notifications, for those that spin
  std::vector<bool> joined_;

  std::vector<std::int64_t> posted_;               // collectives, by index
  std::int64_t met_ = 0;                           // collectives that all have posted
  Queue gathering_;                                // those that some have posted, in order: number met_ is the first
  std::map<std::pair<int, int>, Queue> channels_;  // by sender and receiver: messages that one of them has posted
  Queue moving_;                                   // exchanges that have segments to begin, oldest first
};

}  // namespace trireme::comm
