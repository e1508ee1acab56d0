#pragma once

// Ranks as processes that MPI connects: a MessageWorld (message_world.h, which holds the contracts) over MPI.
//
// MPI only carries messages (MPI_Isend, MPI_Irecv, MPI_Test): the collectives are ours, so their bits are those of
// threads; the library's own are an option (mpi_library_collectives.h). Its errors are returned, never fatal by its own
// hand, and become Error, naming call, peer, operation and group. The two calls that no deadline of ours reaches, its
// start and its end, are watched from another thread.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/env.h"
#include "base/units.h"
#include "engine/comm/communicator.h"
#include "engine/comm/message_world.h"
#include "engine/comm/mpi_launch.h"

namespace trireme::comm {

class MpiLibrary;

struct MpiOptions {
  MessageOptions messages;
  Seconds start_deadline{120};  // of MPI's own start, which waits for all ranks
  // Ends the process, on another thread, with this code and message; does not return. Called when MPI does not come
  // back from its start or end. Required.
  std::function<void(ExitCode, const std::string&)> end_process;
  // For tests: changes what MPI_Isend is given, or the count of a collective of the library (`to` is -1 then).
  std::function<void(int& to, std::int64_t& bytes)> before_send;
};

// Whether this build has MPI.
bool has_mpi();

// One a process, on the thread that makes it, which is the only one that calls it and its communicators. Error if this
// build has no MPI, or if MPI and the launcher disagree on the number of ranks (a library that does not know the
// launcher sees each rank alone).
class MpiWorld {
 public:
  MpiWorld(const Launch& launch, Env& env, MpiOptions options);
  // Without a shut_down() before it, this rank has failed: the others are told, and MPI is not ended, since that would
  // wait for them. The process should end then.
  ~MpiWorld();
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  int rank() const;
  int size() const;
  // "4 ranks started by mpirun (Open MPI v4.1.4)"
  std::string text() const;

  // As MessageWorld::make_communicator(). Communicators may outlive the world; they refuse all calls then. With
  // library_sums it waits for all ranks of the group inside of MPI, watched for the deadline.
  std::unique_ptr<Communicator> make_communicator(const GroupName& name, const GroupOptions& options = {});
  // Of waits that begin later, the end of MPI among them.
  void set_deadline(Seconds deadline);
  // This rank has failed: the others end with kRankLost and the reason. Throws nothing.
  void report_lost(const std::string& reason);
  // The end, in order: waits for all ranks, then ends MPI. Error if the world is dead or dies.
  void shut_down();

 private:
  const MpiOptions options_;
  const Launch launch_;
  std::shared_ptr<MpiLibrary> library_;
  std::shared_ptr<MessageWorld> world_;
  bool ended_ = false;
};

}  // namespace trireme::comm
