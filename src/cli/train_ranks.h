#pragma once

// The ranks of a run in this process, and what is printed of their end.

#include "base/env.h"
#include "cli/train_options.h"
#include "engine/train/rank_reporter.h"

namespace trireme::cli {

// What a supervisor has told this process; absent: it has none.
struct Supervised {
  train::SupervisedBy by;
  double run_elapsed_s = 0;
  double gemm_flops_per_s = 0;  // 0: to be measured
  int ranks = 1;                // of the run
  std::string run;              // the word of its description
};
std::optional<Supervised> current_supervision();

// Trains, or throws. What it has come to is printed, or told to the supervisor.
// cells: of this process's ranks, where its keeper looks; empty: nobody does.
ExitCode train_ranks(Env& env, const comm::Launch& launch, const train::ResolvedRun& run, const TrainOptions& options,
                     const std::optional<Supervised>& supervised, std::span<train::ProgressCell> cells = {});
// Ranks of this process, ascending.
std::vector<int> own_ranks(const comm::Launch& launch, int ranks);

}  // namespace trireme::cli
