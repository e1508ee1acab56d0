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
  bool saves = true;             // the run writes checkpoints
  std::int64_t trace_first = 0;  // step of out.trace; 0: none is asked for
};

// What earlier starts of the run have left in its directory.
struct LeftByStarts {
  std::optional<std::int64_t> checkpoint = std::nullopt;  // the newest one's step
  bool trace = false;
};

// False: this start does not trace, since what was to be traced is done, or out.trace is there by now.
bool traces(const WorkerCommands& commands, const supervisor::WorkerStart& start, const LeftByStarts& left);
ChildCommand worker_command(const WorkerCommands& commands, const supervisor::WorkerStart& start,
                            const LeftByStarts& left);
ChildCommand probe_command(const WorkerCommands& commands, const std::string& host);

}  // namespace trireme::cli
