#pragma once

// Ranks as threads of one process, all running the same loop; the first, the leader, decides what comes next.

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>

#include "engine/comm/threads.h"

namespace trireme::train {

// Runs body(rank) for every rank, each on a thread of its own, rank 0 on the caller's. Where one ends with an error the
// others are told, so that none waits for it. Rethrows the error of the rank that failed first.
void run_rank_threads(int ranks, comm::ThreadWorld& world, const std::function<void(int)>& body);

// How the leader tells the others whether to go on. Rounds count from 1; each rank asks for each round once.
class RoundGate {
 public:
  explicit RoundGate(Seconds deadline) : deadline_(deadline) {}

  // The leader: round `round` happens; nothing comes any more.
  void announce(std::int64_t round);
  void end();
  // The others: waits for that word. Error(kHang) past the deadline, Error(kRankLost) once `give_up` was called.
  bool await(std::int64_t round);
  // The leader: until `others` ranks wait for a round that is not announced, so that their memory stands still. Errors
  // as await().
  void await_others(int others);
  // Any rank that ends with an error.
  void give_up();

 private:
  template <class Ready>
  void wait(std::unique_lock<std::mutex>& lock, const std::string& what, const Ready& ready);

  Seconds deadline_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::int64_t announced_ = 0;
  int waiting_ = 0;
  bool ended_ = false;
  bool gave_up_ = false;
};

}  // namespace trireme::train
