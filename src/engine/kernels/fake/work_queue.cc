#include "engine/kernels/fake/work_queue.h"

#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/random.h"

namespace trireme::kernels::fake {
namespace {

constexpr std::chrono::seconds kIdle{1};

}  // namespace

WorkQueue::WorkQueue(const FakeOptions& options) : options_(options), thread_([this] { run(); }) {}

WorkQueue::~WorkQueue() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void WorkQueue::push(std::function<void()> work, After after) {
  {
    const std::lock_guard lock(mutex_);
    items_.push_back({std::move(work), after});
  }
  changed_.notify_all();
}

void WorkQueue::wait() {
  std::unique_lock lock(mutex_);
  const std::chrono::duration<double> deadline(options_.deadline.count);
  if (!changed_.wait_for(lock, deadline, [this] { return items_.empty() && !busy_; })) {
    throw Error(ExitCode::kHang, "kernels", "synchronize",
                fmt::format("the device has not finished after {}", format_seconds(options_.deadline)));
  }
  if (error_) std::rethrow_exception(error_);
}

void WorkQueue::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    while (items_.empty()) {
      if (ending_) return;
      changed_.wait_for(lock, kIdle);
    }
    Item item = std::move(items_.front());
    items_.pop_front();
    busy_ = true;
    const bool skip = error_ != nullptr && item.after == After::kSkipIfFailed;
    if (!skip) delay(lock);
    lock.unlock();
    std::exception_ptr error;
    try {
      if (!skip) item.work();
    } catch (...) {
      error = std::current_exception();
    }
    item.work = nullptr;  // what it holds goes before anybody is told that it is done
    lock.lock();
    busy_ = false;
    if (error && !error_) error_ = error;
    if (items_.empty()) changed_.notify_all();
  }
}

// The end of the device cuts delays short.
void WorkQueue::delay(std::unique_lock<std::mutex>& lock) {
  if (options_.longest_delay.count <= 0) return;
  const RandomKey key{options_.delay_seed, stream_of("fake device", "delay")};
  const double seconds = options_.longest_delay.count * random_uniform(key, started_++);
  changed_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return ending_; });
}

}  // namespace trireme::kernels::fake
