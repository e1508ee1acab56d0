#pragma once

// What a person sees of a long run: one line that changes on a terminal, plain lines otherwise.

#include <functional>
#include <string>

#include "telemetry/step_record.h"

namespace trireme::train {

// "step 120/400  loss 2.3145  31.2k tok/s  MFU 41.3%  ETA 0:42  412 MB".
std::string progress_line(const telemetry::StepRecord& record, std::int64_t total_steps, double remaining_s);
std::string format_clock(double seconds);  // "0:42", "1:02:03"

class Progress {
 public:
  // put: writes text to standard error as it is.
  Progress(bool terminal, std::int64_t total_steps, std::int64_t interval, std::function<void(const std::string&)> put);
  void step(const telemetry::StepRecord& record);
  void finish();  // ends a line that is still open

 private:
  bool terminal_;
  std::int64_t total_steps_;
  std::int64_t interval_;
  std::function<void(const std::string&)> put_;
  std::size_t width_ = 0;
  double smoothed_step_s_ = 0.0;
};

}  // namespace trireme::train
