#pragma once

// A schedule in time: every stage does its work in its order, each piece as soon as its input is there. A send keeps
// its sender busy for its duration and the receiver has the data at its end; a receive costs nothing (it waits). With
// units for durations this places the transfers of make_schedule(); with seconds it is the planner's simulation.

#include <span>
#include <vector>

#include "plan/schedule.h"

namespace trireme::plan {

// Durations of one virtual stage's work on one micro-batch, and of its sends (ignored where it sends nothing, and where
// the next virtual stage is the same stage).
struct ChunkTimes {
  double forward = 0;
  double backward_input = 0;
  double backward_weight = 0;
  double send_activation = 0;
  double send_gradient = 0;
};

// One piece of work of a stage (transfers are part of their sender's work: from `end` to `free`).
struct TimedAction {
  int stage = 0;
  ChunkAction action;
  double start = 0;
  double end = 0;
  double free = 0;
};

// Work of all stages, each stage's in its order. `times` has one entry a virtual stage.
std::vector<TimedAction> timed_schedule(ScheduleKind kind, int pp, int interleave, int micro_batches,
                                        std::span<const ChunkTimes> times);
// When the last stage is free.
double makespan(const std::vector<TimedAction>& timed);

}  // namespace trireme::plan
