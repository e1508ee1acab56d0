#pragma once

// A run under a supervisor, which is this process.

#include "base/env.h"
#include "cli/train_options.h"

namespace trireme::cli {

// What starts the ranks, where it is left to the program.
train::Launcher chosen_launcher(const train::SuperviseConfig& config);
// `run` has been resolved for ranks in this process; refuses what its supervision asks for and cannot have.
ExitCode train_supervised(Env& env, const train::ResolvedRun& run, const TrainOptions& options);

}  // namespace trireme::cli
