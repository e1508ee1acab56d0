#pragma once

// The ranks of a run and how they reach each other: all of them threads of this process, or one a process, connected
// by MPI (mpi_run_world.h).

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/units.h"
#include "engine/comm/communicator.h"
#include "plan/memory.h"

namespace trireme::train {

class RunWorld {
 public:
  virtual ~RunWorld() = default;
  virtual int ranks() const = 0;                   // of the whole run
  virtual std::vector<int> own_ranks() const = 0;  // those of this process, ascending; never empty
  virtual std::string text() const = 0;            // "4 ranks as threads of this process"
  virtual plan::Backend backend() const = 0;       // the plan of a run in this world is made with it (CHECK)

  // What `rank`, one of this process, makes its communicators with, on its own thread.
  virtual comm::CommunicatorFactory factory(int rank) = 0;
  // Of waits that begin from now on.
  virtual void set_deadline(Seconds deadline) = 0;
  // `rank`, one of this process, has failed: nobody needs to wait for it. Any thread.
  virtual void report_lost(int rank, const std::string& reason) = 0;
  // The end in order, once all ranks of this process have ended without an error.
  virtual void shut_down() = 0;

  bool leads() const { return own_ranks().front() == 0; }
};

// deadline: of each wait for another rank.
std::unique_ptr<RunWorld> make_thread_run_world(int ranks, Seconds deadline);

// Runs body(rank) for every rank of this process, each on a thread of its own, the first on the caller's. Where one
// ends with an error all others of the run are told, so that none waits for it. Rethrows the error of the rank of this
// process that failed first.
void run_ranks(RunWorld& world, const std::function<void(int rank)>& body);

}  // namespace trireme::train
