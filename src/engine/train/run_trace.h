#pragma once

// The trace of a run (out.trace): which steps are recorded, and one file of all ranks' timelines, written by rank 0.

#include <string>
#include <vector>

#include "base/env.h"
#include "base/log.h"
#include "engine/parallel/rank.h"
#include "engine/train/control.h"
#include "engine/train/trainer.h"

namespace trireme::train {

// Room in a rank's timeline: 7 MiB. A step of 100 layers and 8 micro-batches takes some 20,000 spans.
inline constexpr std::int64_t kTimelineSpans = 131'072;

// One rank's part. Every call is made by all ranks; where no trace is asked for, none does anything.
class RunTrace {
 public:
  // hosts: of all ranks.
  RunTrace(Env& env, Log& log, const ResolvedRun& run, parallel::Rank& rank, std::vector<std::string> hosts)
      : env_(env), log_(log), run_(run), rank_(rank), hosts_(std::move(hosts)) {}

  // The rank trainer switches the timeline off at the end of its step: validation is no part of it.
  void before_step(std::int64_t step);
  // After the last of the steps the file is there, on the leader's host.
  void after_step(std::int64_t step, Control& control);
  // The run ends after `steps_done` steps: what was recorded, where that is less than was asked for.
  void end(std::int64_t steps_done, Control& control);

 private:
  telemetry::Timeline* timeline() { return rank_.communication().timeline.get(); }
  struct Scale;
  telemetry::RankTimeline own_timeline();  // and gives its memory back
  Scale agree(Seconds own_begin, Control& control) const;
  void write(std::int64_t last_step, Control& control);
  Json about(std::int64_t last_step) const;

  Env& env_;
  Log& log_;
  const ResolvedRun& run_;
  parallel::Rank& rank_;
  std::vector<std::string> hosts_;
};

}  // namespace trireme::train
