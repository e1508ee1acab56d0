#pragma once

// What `trireme train` and the worker that it starts are told: a run file and what changes it.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/arguments.h"
#include "cli/run_description.h"
#include "engine/comm/mpi_launch.h"
#include "engine/train/trainer.h"

namespace trireme::cli {

struct TrainOptions {
  std::string file;
  std::string out, trace, trace_steps, memory_limit, resume, accept;
  bool dry_run = false;
  bool overwrite = false;
  bool allow_slow_tp = false;
  bool json = false;
  std::string inject;
  std::vector<std::pair<std::string, std::string>> settings;
};

// The options of both commands.
void declare_train_options(Command& command, TrainOptions& options);
// All of them as settings, "section.key" and value, in the order in which they win.
std::vector<std::pair<std::string, std::string>> all_settings(const TrainOptions& options);
// What the user's files say, each read once; the model is still to be read. Error where anything is refused.
RunDescription read_run(Env& env, const TrainOptions& options);
// Checks and resolves for the ranks of this process; reads a model that was not read. Error where anything is refused.
train::ResolvedRun resolve_train(Env& env, const comm::Launch& launch, const RunDescription& description);

}  // namespace trireme::cli
