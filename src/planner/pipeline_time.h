#pragma once

// Time of one step's pipeline (all micro-batches through all stages and back, no optimizer) without walking the
// schedule: the longest of some paths through its dependency graph. Every such path is a lower bound of the simulation
// (plan/timed_schedule.h); with equal stages, and nearly always with the uneven stages of real models, one of them is
// the critical path, so the bound is the very time. The search relies on the bound alone: it simulates candidates in
// its order until no other can win.

#include <span>
#include <vector>

#include "plan/timed_schedule.h"

namespace trireme::planner {

// Durations of one stage's work on one micro-batch, sends included (plan::ChunkTimes: a send keeps its sender busy);
// sums over the stage's chunks under the interleaved schedule.
struct StageTimes {
  double forward = 0;
  double backward_input = 0;
  double backward_weight = 0;
};

// gpipe: sum f + (m - 1) max f, the same of the backwards: exact. 1f1b and zb-h1: paths that turn at one stage of the
// warm-up, stay on one stage, and turn at one of the cool-down. interleaved: a stage's whole work, after and before
// what the earlier stages do on one chunk of the first and the last micro-batch; `first_chunk` are the times of chunk
// 0.
double pipeline_time(plan::ScheduleKind kind, int micro_batches, std::span<const StageTimes> stages,
                     std::span<const StageTimes> first_chunk);

// The simulation's makespan for the same question, by virtual stage.
double simulated_pipeline_time(plan::ScheduleKind kind, int pp, int interleave, int micro_batches,
                               std::span<const plan::ChunkTimes> times);

}  // namespace trireme::planner
