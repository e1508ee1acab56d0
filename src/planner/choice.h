#pragma once

// A layout of the search, and what of its costs depends on a part of it.

#include <array>
#include <string>
#include <vector>

#include "planner/layer_cost.h"
#include "planner/pipeline_time.h"
#include "planner/rank_memory.h"

namespace trireme::planner {

// Small and flat: stages are cut by plan::balanced_chunks.
struct Choice {
  int tp = 1;
  int pp = 1;
  int dp = 1;
  int interleave = 1;
  std::int64_t micro_batch = 1;
  plan::ScheduleKind schedule = plan::ScheduleKind::kOneFOneB;
  int zero = 0;
  model::Recompute recompute = model::Recompute::kNone;
  plan::AxisOrder order = plan::AxisOrder::kTpPpDp;
  bool sequence_parallel = false;
  plan::ReduceWhen reduce = plan::ReduceWhen::kStep;
  int prefetch = 1;

  int world() const { return tp * pp * dp; }
  plan::Layout layout() const;
  friend bool operator==(const Choice&, const Choice&) = default;
};
Choice choice_of(const plan::Layout& layout, std::int64_t micro_batch);
std::string describe(const Choice& choice);

// By (tp, sequence parallelism, micro-batch, recompute).
struct LayerCosts {
  UnitElements elements;
  ActivationBuffers activations;
  FixedBuffers fixed;
  UnitTimes times;
  double send_bytes = 0;  // of a stage boundary, one rank
};

// By (pp, interleave): how the model is cut.
struct StagePlan {
  int pp = 1;
  int interleave = 1;
  std::vector<int> chunk_layers;  // by virtual stage
  std::vector<StageShape> stages;
  // By stage, interleaved only: layers held at most with 1, 2 and more rounds of pp micro-batches.
  std::vector<std::array<double, 3>> held_layers;
  std::vector<int> extremes;  // stages of which one holds most memory, whatever the schedule
};

// By (schedule, m), on top of the two: filled by the evaluator for one choice of axis order and of exchanges that
// happen for each micro-batch.
struct PipelineCosts {
  std::vector<StageTimes> stages;       // sums over a stage's chunks
  std::vector<StageTimes> first_chunk;  // interleaved only
  double time = 0;                      // closed form
};

}  // namespace trireme::planner
