#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "base/descriptor.h"

namespace trireme {

// What a child writes, read on a thread of its own: it is held back until it is known what becomes of it. The child
// waits for the reader of this process's standard error at most, and this process's other threads wait for nobody.
class CapturedOutput {
 public:
  explicit CapturedOutput(int descriptor);  // to read from; closed at the end
  ~CapturedOutput();
  CapturedOutput(const CapturedOutput&) = delete;
  CapturedOutput& operator=(const CapturedOutput&) = delete;

  // To this process's standard error: what was held back, and whatever comes.
  void pass_on();
  // The child has ended. What was held back; "" where it has been passed on.
  std::string end();

 private:
  void run();
  void wake();
  void stop();

  Descriptor input_;
  Descriptor wake_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::string held_;
  bool passes_ = false;
  bool ended_ = false;    // nothing more comes
  bool stopped_ = false;  // nothing more is wanted
  std::thread thread_;    // last: it uses the others
};

}  // namespace trireme
