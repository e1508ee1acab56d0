#include "engine/kernels/fake/work_queue.h"

#include <chrono>
#include <utility>

#include "base/random.h"

namespace trireme::kernels::fake {

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
  changed_.wait(lock, [this] { return items_.empty() && !busy_; });
  if (error_) std::rethrow_exception(error_);
}

void WorkQueue::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ending_ || !items_.empty(); });
    if (items_.empty()) return;
    Item item = std::move(items_.front());
    items_.pop_front();
    const bool skip = error_ != nullptr && item.after == After::kSkipIfFailed;
    busy_ = true;
    lock.unlock();
    std::exception_ptr error;
    try {
      if (!skip) delay();
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

void WorkQueue::delay() {
  if (options_.longest_delay.count <= 0) return;
  const RandomKey key{options_.delay_seed, stream_of("fake device", "delay")};
  const double seconds = options_.longest_delay.count * random_uniform(key, started_++);
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

}  // namespace trireme::kernels::fake
