#pragma once

// The threads of a rank's loops: the one that calls, and others of the team's own that wait for it.
//
// Who waits looks for some microseconds, then sleeps: a core that another program wants is not held by waiting
// (docs/decisions/0014-threads-that-sleep.md).

#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "base/waited_word.h"

namespace trireme::kernels::cpu {

class Team {
 public:
  // size >= 1, the caller included. Throws std::system_error where the system has no more threads.
  explicit Team(int size);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int size() const { return size_; }

  // function(member) for members [0, size), each on a thread of its own; 0 is the caller's. Returns when all have
  // returned. What the first of them throws is thrown here. One caller at a time, and not from within.
  template <class Function>
  void each(const Function& function) {
    if (size_ == 1) return function(0);
    run({&function, [](const void* of, int member) { (*static_cast<const Function*>(of))(member); }});
  }

 private:
  struct Work {
    const void* function = nullptr;
    void (*call)(const void* function, int member) = nullptr;
  };
  void run(const Work& work);
  void serve(int member);
  void do_part(int member);
  void end();

  const int size_;
  Work work_;
  bool over_ = false;
  std::mutex failure_mutex_;
  std::exception_ptr failure_;
  // On lines of their own: all look at the one while somebody writes the other.
  alignas(64) WaitedWord round_;       // counts up when there is work, or the end
  alignas(64) WaitedWord unfinished_;  // members that are at work
  std::vector<std::thread> threads_;
};

}  // namespace trireme::kernels::cpu
