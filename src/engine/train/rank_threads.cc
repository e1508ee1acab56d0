#include "engine/train/rank_threads.h"

#include <chrono>
#include <exception>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"

namespace trireme::train {

void run_rank_threads(int ranks, comm::ThreadWorld& world, const std::function<void(int)>& body) {
  std::mutex mutex;
  std::exception_ptr first;
  const auto guarded = [&](int rank) {
    try {
      body(rank);
    } catch (const std::exception& error) {
      {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
      }
      world.report_lost(rank, error.what());
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 1; rank < ranks; ++rank) threads.emplace_back(guarded, rank);
  guarded(0);
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

void RoundGate::announce(std::int64_t round) {
  const std::lock_guard lock(mutex_);
  announced_ = round;
  waiting_ = 0;  // all of them are released
  changed_.notify_all();
}

void RoundGate::end() {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  changed_.notify_all();
}

template <class Ready>
void RoundGate::wait(std::unique_lock<std::mutex>& lock, const std::string& what, const Ready& ready) {
  const auto over = [&] { return gave_up_ || ready(); };
  if (!changed_.wait_for(lock, std::chrono::duration<double>(deadline_.count), over)) {
    throw Error(ExitCode::kHang, "train", what, fmt::format("not within {}", format_seconds(deadline_)));
  }
  if (gave_up_) throw Error(ExitCode::kRankLost, "train", what, "another rank has failed");
}

bool RoundGate::await(std::int64_t round) {
  std::unique_lock lock(mutex_);
  const auto begun = [&] { return ended_ || announced_ >= round; };
  if (!begun()) {
    ++waiting_;
    changed_.notify_all();
  }
  wait(lock, fmt::format("wait for rank 0 to begin round {}", round), begun);
  return !ended_;
}

void RoundGate::await_others(int others) {
  std::unique_lock lock(mutex_);
  wait(lock, "wait for the other ranks to end their round", [&] { return waiting_ == others; });
}

void RoundGate::give_up() {
  const std::lock_guard lock(mutex_);
  gave_up_ = true;
  changed_.notify_all();
}

}  // namespace trireme::train
