#pragma once

// From the state being there to the model on disk: the leader's loop, which decides, and the others', which follow.

#include <functional>

#include "engine/train/control.h"
#include "engine/train/progress.h"
#include "engine/train/rank_watch.h"
#include "engine/train/resume.h"
#include "engine/train/run_directory.h"
#include "engine/train/run_trace.h"

namespace trireme::train {

// What a rank has in its loop.
struct RankRun {
  Env& env;      // waits for what may pass
  Env& at_once;  // does not
  const ResolvedRun& run;
  const TrainHooks& hooks;
  RunWorld& world;
  RankWatch& watch;
  Control& control;
  RankTrainer& rank;
  RunTrace& trace;
};

// What the leader has beside it. outcome: filled in.
struct LeadersRun {
  const RunStart& start;
  const Resumed& from;
  DirectoryClaim& claim;
  const data::Sampler& tokens;
  Progress& progress;
  Seconds begun;  // this start
  TrainOutcome& outcome;
  std::function<double()> measure_rate;  // that MFU is of, once more; takes some milliseconds
};

// Rank 0: steps, metrics, the decisions to go on and to save, the model at the end.
void lead(const RankRun& rank, const LeadersRun& leader);
// The others, which have `first_step` steps done.
void follow(const RankRun& rank, std::int64_t first_step);

bool saves(const RunConfig& config);

}  // namespace trireme::train
