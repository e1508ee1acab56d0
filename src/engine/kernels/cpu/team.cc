#include "engine/kernels/cpu/team.h"

#include <utility>

#include "base/check.h"

namespace trireme::kernels::cpu {
namespace {

// More than passes between two loops where nobody else wants the cores, and little of a time slice.
constexpr int kLooks = 2000;

}  // namespace

Team::Team(int size) : size_(size) {
  TRIREME_CHECK_GE(size, 1);
  try {
    for (int member = 1; member < size; ++member) threads_.emplace_back([this, member] { serve(member); });
  } catch (...) {
    end();
    throw;
  }
}

Team::~Team() { end(); }

void Team::end() {
  over_ = true;
  round_.add(1);
  for (std::thread& thread : threads_) thread.join();
}

void Team::run(const Work& work) {
  TRIREME_CHECK(unfinished_.value() == 0, "a team is given work while it is at work");
  work_ = work;
  unfinished_.set(static_cast<std::uint32_t>(size_));
  round_.add(1);
  do_part(0);
  while (const std::uint32_t left = unfinished_.value()) unfinished_.wait_while(left, kLooks);
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void Team::serve(int member) {
  for (std::uint32_t seen = 0;; ++seen) {  // no round begins before all are through the one before
    round_.wait_while(seen, kLooks);
    if (over_) return;
    do_part(member);
  }
}

void Team::do_part(int member) {
  try {
    work_.call(work_.function, member);
  } catch (...) {
    const std::lock_guard lock(failure_mutex_);
    if (!failure_) failure_ = std::current_exception();
  }
  unfinished_.subtract(1);
}

}  // namespace trireme::kernels::cpu
