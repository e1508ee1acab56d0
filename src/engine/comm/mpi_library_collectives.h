#pragma once

// Sums by the MPI library's own collectives (kLibrary): all_reduce, reduce_scatter and all_gather of a group;
// everything else is the wrapped communicator's.
//
// They run in the message world like its own operations: progress() of any communicator moves them, the first error
// ends the world, and a wait has the world's deadline, which is of the whole collective, since the library shows no
// progress and does not say which rank is missing. The order of sums is the library's.

#include <memory>

#include "engine/comm/message_world.h"
#include "engine/comm/mpi_library.h"

namespace trireme::comm {

// inner: of the world, and of the same ranks as the library's group.
std::unique_ptr<Communicator> make_library_communicator(std::unique_ptr<Communicator> inner,
                                                        std::shared_ptr<MessageWorld> world,
                                                        std::shared_ptr<MpiLibrary> library, MpiLibrary::Group group);

}  // namespace trireme::comm
