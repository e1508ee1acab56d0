#pragma once

// One layout's step time and memory. The search screens millions with the closed forms; the same pieces, with the
// schedule simulated, make the full estimate of one. What depends on part of a layout only is worked out once and kept.
// Not for two threads at once.

#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "planner/data_axis.h"

namespace trireme::planner {

struct Screened {
  double time = 0;    // seconds a step; never above what the simulation gives
  double memory = 0;  // bytes of the worst rank
};

struct TimeParts {
  double gemm = 0;
  double attention = 0;
  double memory = 0;    // bound by memory or launches
  double tensor = 0;    // exposed exchange of the tensor axis
  double pipeline = 0;  // sends
  double bubble = 0;    // waiting of the busiest stage
  double data = 0;      // exposed exchange of the data axis
  double gathers = 0;   // of parameters (ZeRO 3), exposed, and of updated weights
  double optimizer = 0;
  double overhead = 0;
  double total() const {
    return gemm + attention + memory + tensor + pipeline + bubble + data + gathers + optimizer + overhead;
  }
};

struct Estimate {
  Choice choice;
  std::int64_t micro_batches = 1;
  double step_s = 0;         // with the schedule simulated
  double closed_form_s = 0;  // the screening's
  TimeParts parts;           // of the busiest stage; they add up to step_s
  int busiest_stage = 0;
  int worst_stage = 0;                 // in memory
  std::vector<MemoryEstimate> memory;  // by stage
  double mfu = 0;                      // model flops / (step time, devices, peak)
  double tokens_per_s = 0;
  const MemoryEstimate& worst() const { return memory[static_cast<std::size_t>(worst_stage)]; }
};

class Evaluator {
 public:
  explicit Evaluator(Problem problem);

  const Problem& problem() const { return problem_; }
  const LayerCosts& layer_costs(int tp, bool sequence_parallel, std::int64_t micro_batch, model::Recompute recompute);
  const StagePlan& stage_plan(int pp, int interleave);

  AxisLines axis_lines(const Choice& choice) const { return planner::axis_lines(problem_, links_, choice); }

  // Pieces that the search hoists out of its loops. `costs.time` is set.
  void pipeline_costs(const Choice& choice, const LayerCosts& layers, const StagePlan& plan, const AxisLines& lines,
                      PipelineCosts& costs) const;
  double step_time(const Choice& choice, const LayerCosts& layers, const StagePlan& plan, const AxisLines& lines,
                   const PipelineCosts& costs) const;
  double worst_memory(const Choice& choice, const LayerCosts& layers, const StagePlan& plan) const;

  Screened screen(const Choice& choice);
  Estimate estimate(const Choice& choice);
  // The schedule simulated alone: the step's time.
  double simulate(const Choice& choice);

 private:
  std::int64_t micro_batches(const Choice& choice) const {
    return problem_.global_batch / (choice.micro_batch * choice.dp);
  }
  struct Pieces {
    const LayerCosts& layers;
    const StagePlan& plan;
    AxisLines lines;
    PipelineCosts costs;  // closed form
  };
  Pieces pieces_of(const Choice& choice);
  void stage_costs(const Choice& choice, const LayerCosts& layers, const StagePlan& plan, const AxisLines& lines,
                   PipelineCosts& costs) const;
  void interleaved_costs(const Choice& choice, const LayerCosts& layers, const StagePlan& plan, const AxisLines& lines,
                         PipelineCosts& costs) const;
  std::vector<plan::ChunkTimes> chunk_times(const Choice& choice, const LayerCosts& layers, const StagePlan& plan,
                                            const AxisLines& lines) const;
  double simulated(const Choice& choice, const Pieces& pieces) const;
  MemoryEstimate memory_of(const Choice& choice, const LayerCosts& layers, const StagePlan& plan, int stage) const;
  void fill_parts(const Pieces& pieces, Estimate& estimate) const;

  Problem problem_;
  Links links_;
  ModelUnits units_;
  std::map<std::tuple<int, bool, std::int64_t, int>, std::unique_ptr<LayerCosts>> layers_;
  std::map<std::pair<int, int>, std::unique_ptr<StagePlan>> plans_;
  std::map<int, UnitElements> elements_;
  std::map<std::tuple<int, bool, std::int64_t>, FixedBuffers> fixed_;  // by tp, sequence parallelism, micro-batch
};

}  // namespace trireme::planner
