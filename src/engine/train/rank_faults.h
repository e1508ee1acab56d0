#pragma once

// Makes the planned faults of one rank happen. Its thread's, but for writing().

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/env.h"
#include "base/log.h"
#include "engine/comm/timing.h"
#include "engine/train/planned_faults.h"
#include "plan/program.h"

namespace trireme::train {

class RankFaults {
 public:
  struct Place {
    int rank = 0;
    std::string out;          // the run directory
    bool supervised = false;  // marks count
    bool bears_loss = true;   // it is of the last stage
  };
  // Of `faults` those of its rank. References outlive it.
  RankFaults(Env& env, Log& log, const std::vector<PlannedFault>& faults, const Place& place);
  ~RankFaults();

  bool none() const { return faults_.empty(); }
  bool slows() const;  // after() and times are needed
  bool poisons() const;

  // The rank has come there. step: the one that begins, was saved, is validated.
  void at(telemetry::Phase phase, std::int64_t step);
  void before(const plan::Instruction& instruction);  // of a step or of validation
  void after(const plan::Instruction& instruction);
  void spoil(double& loss_scale) const;  // of a pass
  Seconds take_slept();                  // since it was last asked: the slow rank's work, too
  // By the thread that writes: its part is written.
  void writing(std::int64_t step);

  // What the rank is blocked for does not count as its work.
  void set_times(const comm::CommunicationTimes* times) { times_ = times; }
  // For the rank's saves.
  Env& save_env();

 private:
  struct Own {
    PlannedFault fault;
    std::size_t number = 0;  // in the whole plan
    bool decided = false;    // in this start
    bool happens = false;
  };
  bool due(Own& own);
  void happen(Own& own);
  void flip_and_end();
  Seconds slept_;
  Seconds blocked() const { return times_ == nullptr ? Seconds{0} : times_->exposed(); }

  Env& env_;
  Log& log_;
  const Place place_;
  std::vector<Own> faults_;
  const comm::CommunicationTimes* times_ = nullptr;
  std::unique_ptr<Env> disk_;                 // null: no disk gets full
  std::atomic<std::int64_t> full_step_ = -1;  // whose save finds no room
  // Of the step at hand.
  std::int64_t step_ = 0;
  bool validates_ = false;
  bool poisoned_ = false;
  // Of the instruction at hand.
  double factor_ = 1;
  comm::Clock::time_point begun_;
  Seconds blocked_;
  Seconds owed_;  // to sleep
};

}  // namespace trireme::train
