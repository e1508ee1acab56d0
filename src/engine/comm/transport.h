#pragma once

// What moves bytes between processes, as far as the collectives of message_world.h need it: messages that start, are
// asked for, and never block. MPI implements it (mpi.cc); unit tests have one in memory.
//
// Messages of one sender, receiver and tag arrive in the order in which they were sent. One thread only.

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>

#include "base/exit_code.h"

namespace trireme::comm {

// A call of the transport's library failed. what(): "MPI_Isend to rank 7: MPI_ERR_RANK: invalid rank".
class TransportError : public std::runtime_error {
 public:
  TransportError(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  // kInternal: the call was wrong; kRankLost: the peers cannot be reached.
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

class Transport {
 public:
  using Ticket = std::int64_t;  // of a message under way
  static constexpr int kAnyRank = -1;
  static constexpr std::int64_t kMaxMessage = std::int64_t{1} << 30;

  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual int tag_limit() const = 0;  // tags are 0 to this, at least 32766

  // Start a message of at most kMaxMessage bytes. Data stay in place until test() has answered true; what comes must
  // be as long as `data` (TransportError).
  virtual Ticket send(int to, int tag, std::span<const std::byte> data) = 0;
  virtual Ticket receive(int from, int tag, std::span<std::byte> data) = 0;  // from: may be kAnyRank
  // Whether the message is complete; makes progress. After true the ticket is void.
  virtual bool test(Ticket ticket) = 0;
  // Takes back a receive that no message has met; the ticket is void.
  virtual void cancel(Ticket ticket) = 0;
  // The last call: nothing under way is read or written any more, as far as the library lets. Throws nothing.
  virtual void abandon() = 0;
};

}  // namespace trireme::comm
