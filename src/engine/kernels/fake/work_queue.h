#pragma once

// A queue of work and the thread that does it in order: what a GPU's stream is to its host.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include "engine/kernels/fake/fake_device.h"

namespace trireme::kernels::fake {

// One host thread pushes and waits.
class WorkQueue {
 public:
  explicit WorkQueue(const FakeOptions& options);
  ~WorkQueue();  // finishes what is queued; an error that nobody waited for is lost
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  enum class After { kSkipIfFailed, kAlways };
  // Returns at once. After an error, work is dropped, unless it must be done anyway (freeing memory).
  void push(std::function<void()> work, After after = After::kSkipIfFailed);
  // Until the queue is empty. Throws the first error of the work; so does every later call. Past the deadline, throws
  // Error(kHang) and the work goes on.
  void wait();

 private:
  struct Item {
    std::function<void()> work;
    After after;
  };
  void run();
  void delay(std::unique_lock<std::mutex>& lock);

  const FakeOptions options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> items_;
  bool busy_ = false;
  bool ending_ = false;
  std::exception_ptr error_;
  std::uint64_t started_ = 0;  // the thread's own
  std::thread thread_;
};

}  // namespace trireme::kernels::fake
