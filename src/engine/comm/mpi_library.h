#pragma once

// The seam between MpiWorld and the MPI library: mpi.cc, or mpi_stub.cc in a build without one.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "engine/comm/transport.h"

namespace trireme::comm {

class MpiLibrary : public Transport {
 public:
  virtual std::string version() const = 0;  // "Open MPI v4.1.4"
  // Waits for all ranks inside of MPI. Nothing may be under way; nothing may be called afterwards.
  virtual void end() = 0;
};

// Starts MPI: once a process (CHECK). Waits for all ranks inside of MPI. before_send as in MpiOptions.
std::shared_ptr<MpiLibrary> start_mpi(const std::function<void(int& to, std::int64_t& bytes)>& before_send);

}  // namespace trireme::comm
