#pragma once

// What a run has done and what its failures cost: the steps that count, and the way from each failure to the next step
// that was never done before. Pure.

#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "supervisor/incident.h"

namespace trireme::supervisor {

class RunTally {
 public:
  std::int64_t furthest() const { return furthest_; }  // step ever completed
  std::int64_t durable() const { return durable_; }    // newest step that cannot be lost, as far as known; -1: none
  double useful_s() const { return useful_s_ > 0 ? useful_s_ : 0; }

  void resumed(std::int64_t step, bool continues, Seconds now);
  // Of the leader, ascending within a start. A recovery that is complete with this step.
  std::optional<Recovery> step_done(std::int64_t step, Seconds duration, Seconds now);
  void saved(std::int64_t step);
  // The run is at its end: a recovery that no further step will complete.
  std::optional<Recovery> finished(Seconds now);

  // A failure opens a recovery, or continues the one that is open: it is counted from the first.
  void failed(const std::string& layout, Seconds now);
  void gone(Seconds now);  // no process of the failed start is left
  void launched(const std::string& layout, Seconds now);
  void connected(Seconds now);
  bool recovering() const { return open_.has_value(); }

 private:
  struct Open {
    Recovery recovery;
    Seconds mark;  // up to which the time is accounted for
    std::int64_t furthest = 0;
    bool repeated = false;                      // all that had been done before
    double Recovery::*part = &Recovery::end_s;  // that is under way
  };
  void account(double Recovery::*next, Seconds now);  // what follows is of `next`

  std::int64_t furthest_ = 0;
  std::int64_t durable_ = -1;
  std::int64_t first_ = 0;     // steps_[i] is of step first_ + i + 1
  std::vector<double> steps_;  // seconds of the steps that count
  double useful_s_ = 0;
  std::optional<Open> open_;
};

}  // namespace trireme::supervisor
