#pragma once

// Where the ranks of a run come from: this process was started alone, and they are threads of it; or a launcher started
// a process a rank.

#include <memory>

#include "engine/comm/mpi_launch.h"
#include "engine/train/run_config.h"
#include "engine/train/run_world.h"

namespace trireme::cli {

// By this process's environment variables.
comm::Launch current_launch();
// What this process is for a run whose supervise.launcher is `named`. Variables of a launcher that has started one task
// say nothing: a shell of it (srun --pty bash) has them too. A launcher that is named starts the ranks whatever they
// say; Error where this is not the first of the processes that another has started.
comm::Launch launch_of_run(const comm::Launch& by_variables, train::Launcher named);
// Of a worker: by what its supervisor has started it with.
comm::Launch launch_of_worker();
bool was_started_by(train::Launcher launcher);
// Law 3: as many ranks as the layout has, or refused with both numbers.
Status check_launch(const comm::Launch& launch, const plan::Layout& layout);
// A command that runs its ranks as threads refuses a launcher that has started several.
Status check_alone(const comm::Launch& launch, const std::string& command);

// How the ranks of make_run_world() reach each other.
plan::Backend backend_of(const comm::Launch& launch);

// check_launch() must have passed (CHECK). With a launcher this starts MPI, and waits for all ranks.
std::unique_ptr<train::RunWorld> make_run_world(const comm::Launch& launch, Env& env, const train::RunConfig& config);

// A launcher ends the job, with that code, as soon as one process has ended with an error. What only follows from
// another rank's failure, and what every rank refuses alike, waits a moment, so that the cause is told, and once.
void let_the_cause_end_first(const comm::Launch& launch, Env& env, ExitCode code);

}  // namespace trireme::cli
