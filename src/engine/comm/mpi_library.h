#pragma once

// The seam between MpiWorld and the MPI library: mpi.cc, or mpi_stub.cc in a build without one.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "engine/comm/communicator.h"
#include "engine/comm/transport.h"

namespace trireme::comm {

class MpiLibrary : public Transport {
 public:
  virtual std::string version() const = 0;  // "Open MPI v4.1.4"

  // The library's own collectives over a group, in place; tickets as those of messages. All members start them in the
  // same order. At most kMaxCount elements each. For floats and integers of 4 and 8 bytes; all_gather for all types.
  using Group = int;
  static constexpr std::int64_t kMaxCount = std::int64_t{1} << 30;
  // All members make it: it waits for them inside of MPI. World ranks, by index in the group.
  virtual Group make_group(std::span<const int> ranks) = 0;
  virtual Ticket all_reduce(Group group, std::byte* data, std::int64_t count, DType dtype, Reduction reduction) = 0;
  // The sum, at the root alone; others' data stay.
  virtual Ticket reduce(Group group, int root, std::byte* data, std::int64_t count, DType dtype) = 0;
  virtual Ticket all_gather(Group group, std::byte* data, std::int64_t count, DType dtype) = 0;  // share_of()

  // Waits for all ranks inside of MPI. Nothing may be under way; nothing may be called afterwards.
  virtual void end() = 0;
};

// Starts MPI: once a process (CHECK). Waits for all ranks inside of MPI. before_send as in MpiOptions.
std::shared_ptr<MpiLibrary> start_mpi(const std::function<void(int& to, std::int64_t& bytes)>& before_send);

}  // namespace trireme::comm
