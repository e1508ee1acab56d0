#pragma once

// A number that threads of this process wait to see changed: they look at it for a while, then sleep (futex(2)).
//
// std::atomic's own wait() yields before it sleeps, which hands a core that other programs want away for a whole time
// slice; a sleeper has a claim to one when it is woken.

#include <atomic>
#include <cstdint>

namespace trireme {

class WaitedWord {
 public:
  explicit WaitedWord(std::uint32_t value = 0) : value_(value) {}
  WaitedWord(const WaitedWord&) = delete;
  WaitedWord& operator=(const WaitedWord&) = delete;

  // What was written before a change is seen by whoever has seen the change.
  std::uint32_t value() const { return value_.load(std::memory_order_acquire); }

  // Without waking anybody: where nobody can wait.
  void set(std::uint32_t value) { value_.store(value, std::memory_order_release); }
  // Adds (modulo 2^32), wakes all that sleep and returns what it was.
  std::uint32_t add(std::uint32_t count);
  std::uint32_t subtract(std::uint32_t count) { return add(-count); }

  // Until it is not `value`: looks so many times (some 10 to 35 ns each), then sleeps.
  void wait_while(std::uint32_t value, int looks);

 private:
  void sleep_while(std::uint32_t value);

  std::atomic<std::uint32_t> value_;
  std::atomic<std::uint32_t> sleepers_ = 0;
};

}  // namespace trireme
