#pragma once

// Where the time of a step goes: each kernel of one rank against what this machine can do at most, as measured just
// before and just after, the better of the two.

#include "engine/train/run_config.h"
#include "engine/train/trainer.h"
#include "telemetry/kernel_times.h"

namespace trireme::train {

struct StepProfile {
  std::vector<telemetry::KernelTimes> kernels;  // of a step, those that take longest first
  double step_s = 0;
  double waited_s = 0;  // of that for other ranks
  double tokens = 0;    // of a step, over all ranks
  double model_flops = 0;
  // Of the threads of a rank: products of the run's type, and what a copy reads and writes, in memory and in a cache.
  double gemm_flops_per_s = 0;
  double copy_bytes_per_s = 0;
  double cache_bytes_per_s = 0;
};

// Ranks as threads of this process, from initial weights; one step is not looked at. rank: of the layout.
StepProfile profile_steps(Env& env, Log& log, const ResolvedRun& run, int steps, int rank);

}  // namespace trireme::train
