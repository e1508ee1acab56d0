// In the place of mpi.cc where CMake finds no MPI.

#include "base/error.h"
#include "engine/comm/mpi.h"
#include "engine/comm/mpi_library.h"

namespace trireme::comm {

bool has_mpi() { return false; }

std::shared_ptr<MpiLibrary> start_mpi(const std::function<void(int& to, std::int64_t& bytes)>&) {
  throw Error(ExitCode::kUsage, "comm", "the start of MPI", "this build has no MPI",
              "install libopenmpi-dev and openmpi-bin (tools/install.sh build) and build again, or run the ranks as "
              "threads of one process");
}

}  // namespace trireme::comm
