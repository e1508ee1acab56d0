#pragma once

// What is told of a launcher that cannot start the ranks.

#include <string>
#include <string_view>

#include "cli/worker_command.h"

namespace trireme::cli {

// The launcher, where it is left to the program. In a Slurm allocation srun, but for a single task of it, as an
// interactive shell is, and where there is no srun: on one node neither needs it.
train::Launcher chosen_launcher(const train::SuperviseConfig& config);
// Refuses a launcher whose program cannot be started.
Status check_launcher(train::Launcher launcher, const train::SuperviseConfig& supervise);

// The line that says most of a launcher's words: the first that tells of a failure, else the first that is no ornament.
std::string meaningful_line(std::string_view said);
// What to do about it. mpi_types: what `srun --mpi=list` says.
std::string launcher_advice(const WorkerCommands& commands, std::string_view said, std::string_view mpi_types);
std::string mpi_types_of(const WorkerCommands& commands);

}  // namespace trireme::cli
