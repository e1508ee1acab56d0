#pragma once

// A run under a supervisor, which is this process.

#include "base/env.h"
#include "cli/train_options.h"

namespace trireme::cli {

// Whether ranks may be on other machines than this one.
bool on_several_hosts(Env& env, const train::SuperviseConfig& config);
// `run` is the description, resolved for ranks in this process. Refuses what its supervision asks for and cannot have.
// Every start of its workers trains what was described here, whatever becomes of the user's files.
ExitCode train_supervised(Env& env, const RunDescription& description, const train::ResolvedRun& run,
                          const TrainOptions& options);

}  // namespace trireme::cli
