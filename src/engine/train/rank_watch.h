#pragma once

// What goes along with a rank: where it is and how it ends, for the supervisor; its own log file; the faults that are
// planned for it. The rank's own thread's.

#include <memory>
#include <string>

#include "engine/train/rank_faults.h"
#include "engine/train/rank_trainer.h"
#include "engine/train/trainer.h"

namespace trireme::train {

// The last word of a rank that has failed; returns once it has left.
void tell_failure(Reporter& reporter, int rank, const std::exception& error);

class RankWatch {
 public:
  // References outlive it. hooks.reporter must be there. env: for saves; at_once: for the log, which waits for nothing.
  RankWatch(Env& env, Env& at_once, Log& log, const ResolvedRun& run, const TrainHooks& hooks, int rank);

  // Standard error, or what the run has in its place, and the rank's file.
  Log& log() { return *both_; }
  // The run directory is there: lines from now on, and those from before, are in the rank's file, which begins with
  // who writes there.
  void open_log();

  // Where the rank is; faults that are planned there happen. step: that is validated or saved.
  void at(telemetry::Phase phase, std::int64_t step = 0);
  void begins(std::int64_t step);  // with its instructions
  void set_next(std::int64_t step) { own_.step(step); }
  void step_done(std::int64_t step, const RankTrainer& rank);

  // What the rank's trainer must be built with.
  RankHooks trainer_hooks();
  // For saves.
  Env& save_env() { return faults_.save_env(); }
  std::function<void(std::int64_t)> written();

  // While it lives the supervisor can ask for the rank's last operations.
  class Recorded {
   public:
    Recorded(RankWatch& watch, parallel::CommunicationRecords& records);
    ~Recorded();
    Recorded(const Recorded&) = delete;
    Recorded& operator=(const Recorded&) = delete;

   private:
    RankWatch& watch_;
  };

  // The rank's last word.
  void failed(const std::exception& error);

 private:
  Env& at_once_;
  Log& log_;
  const ResolvedRun& run_;
  Reporter& reporter_;
  const std::optional<std::int64_t> incarnation_;
  const int rank_;
  RankReporter& own_;
  FileLog file_;
  std::unique_ptr<Log> both_;
  RankFaults faults_;
};

}  // namespace trireme::train
