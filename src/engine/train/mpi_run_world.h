#pragma once

// A run whose ranks are processes, one each, connected by MPI. Apart from the rest of engine/train, so that only what
// uses it is linked with MPI.

#include "engine/comm/mpi.h"
#include "engine/train/run_world.h"

namespace trireme::train {

// Starts MPI (comm::MpiWorld's constructor says what it refuses) and waits for all ranks. One a process.
std::unique_ptr<RunWorld> make_mpi_run_world(const comm::Launch& launch, Env& env, comm::MpiOptions options);

}  // namespace trireme::train
