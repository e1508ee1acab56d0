#pragma once

// How a supervisor starts its workers: the words of a command line, and what goes into their environment.

#include "cli/train_options.h"
#include "supervisor/shell.h"

namespace trireme::cli {

struct WorkerCommands {
  std::string program;  // this one's file
  train::Launcher launcher = train::Launcher::kThreads;
  train::SuperviseConfig supervise;
  std::string file;  // run.toml
  std::vector<std::pair<std::string, std::string>> settings;
  std::string inject;
  int cores = 1;  // of this host
  bool root = false;
};

ChildCommand worker_command(const WorkerCommands& commands, const supervisor::WorkerStart& start, bool own_checkpoints);
ChildCommand probe_command(const WorkerCommands& commands, const std::string& host);

}  // namespace trireme::cli
