#pragma once

// How a supervisor starts its workers: the words of a command line, and what goes into their environment.

#include "cli/train_options.h"
#include "supervisor/shell.h"

namespace trireme::cli {

struct WorkerCommands {
  std::string program;  // this one's file, by a name that its launcher can start
  train::Launcher launcher = train::Launcher::kThreads;
  train::SuperviseConfig supervise;
  std::string run;  // what it is: to_word(RunDescription)
  std::string out;  // run directory, which a list of processes shows
  std::string inject;
  int cores = 1;  // of this host
  bool root = false;
};

ChildCommand worker_command(const WorkerCommands& commands, const supervisor::WorkerStart& start, bool own_checkpoints);
ChildCommand probe_command(const WorkerCommands& commands, const std::string& host);

}  // namespace trireme::cli
