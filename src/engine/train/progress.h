#pragma once

// What a person sees of a long run: on a terminal one line that changes, elsewhere lines now and then; metrics.jsonl
// has every step.

#include <string>

#include "base/screen.h"
#include "telemetry/step_record.h"

namespace trireme::train {

// "step 120/400", "loss 2.3145", "31.2k tok/s", "MFU 41.3%", "ETA 0:42", "412 MB".
Fields progress_fields(const telemetry::StepRecord& record, std::int64_t total_steps, double remaining_s);
std::string format_clock(double seconds);  // "0:42", "1:02:03"

// A step with a validation loss and the last of the run have a line that stays. Others, on a terminal, are a status.
// Elsewhere they have a line where `interval` divides the step; with interval 0 the first kFirst of them, then one once
// a twentieth of the time since the start has passed since the line before, kShortest at least and kLongest at most.
class Progress {
 public:
  static constexpr int kFirst = 3;
  static constexpr Seconds kShortest{2}, kLongest{60};
  static constexpr Seconds kBetweenStatus{0.1};

  // screen: outlives it; null: nobody looks. now: the start.
  Progress(Screen* screen, std::int64_t total_steps, std::int64_t interval, Seconds now);
  ~Progress() { finish(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void step(const telemetry::StepRecord& record, Seconds now);
  // The last step, if it has no line yet, gets one that stays.
  void finish();

 private:
  bool line_due(std::int64_t step, Seconds now) const;

  Screen* const screen_;
  const std::int64_t total_steps_;
  const std::int64_t interval_;
  const Seconds begun_;
  Seconds shown_;
  std::int64_t steps_ = 0;
  Fields last_;  // of a step without a line; empty: it has one
  double smoothed_step_s_ = 0.0;
};

}  // namespace trireme::train
