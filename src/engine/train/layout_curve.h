#pragma once

// What a layout computes: losses, norms, and every logical tensor's gradient and weights after each step, put together
// from all ranks' slices. Ranks run as threads of this process.

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "engine/parallel/executor.h"
#include "engine/train/trainer.h"

namespace trireme::train {

struct TensorValues {
  std::vector<double> gradient;  // whole, as the clip norm saw it
  std::vector<double> weight;    // after the update
};
struct StepValues {
  double loss = 0;
  double grad_norm = 0;
  std::map<std::string, TensorValues> tensors;  // by Hugging Face name
};

// Where tests plant faults: called for each rank before it is built, and for each pass of a unit.
struct RankHooks {
  std::function<void(parallel::RunPlan&)> plan = {};
  std::function<void(int rank, parallel::Executor&)> executor = {};
  std::function<std::int64_t(int rank, std::int64_t sample)> sample = {};  // which sample a rank reads instead
};

// `run`'s layout for `steps` steps. Two ranks that hold the same slice must hold the same bits: InternalError names the
// tensor otherwise. compute: kF32 on the CPU, or kF64 in the plain loops (slow; one rank).
std::vector<StepValues> run_layout(Env& env, Log& log, const ResolvedRun& run, int steps, const RankHooks& hooks = {});

}  // namespace trireme::train
