#include "base/waited_word.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>

namespace trireme {
namespace {

static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));  // what the system call takes

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

// Either the one that changes sees the sleeper, or the sleeper's system call sees the change: both sides write, then
// read, in one order (seq_cst).
std::uint32_t WaitedWord::add(std::uint32_t count) {
  const std::uint32_t before = value_.fetch_add(count);
  if (sleepers_.load() > 0) syscall(SYS_futex, &value_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
  return before;
}

void WaitedWord::sleep_while(std::uint32_t value) {
  sleepers_.fetch_add(1);
  syscall(SYS_futex, &value_, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
  sleepers_.fetch_sub(1);
}

void WaitedWord::wait_while(std::uint32_t value, int looks) {
  for (int i = 0; i < looks; ++i) {
    if (this->value() != value) return;
    relax();
  }
  while (this->value() == value) sleep_while(value);
}

}  // namespace trireme
