#pragma once

// Other algorithms for sums over ranks than the backend's own, over sends and receives: a decorator of any
// communicator. docs/algorithms/collectives.md has their steps, bytes, memory and when each is better.
//
//   kOrdered             the backend's default, untouched: the canonical order of sums
//   kRing                all_reduce and reduce_scatter
//   kRecursiveDoubling   all_reduce
//   kHierarchical        all_reduce
//   kLibrary             untouched: a backend that has a library's collectives gives them under this name itself
// Everything else passes to the wrapped communicator.
//
// Sums are the same on every rank and from run to run, but not the canonical ones, except over two ranks and of
// integers.
//
// Rules beyond those of a communicator
//  * Sums of one communicator run one after the other; what is called behind a sum is posted when that has ended here.
//    They move on in done() and wait() of a sum or of what is behind one, and in progress(); nowhere else. Ranks that
//    share several such communicators wait for operations of different ones in the same order.
//  * Send and receive share their channels with the sums: the two ranks of a message call it in the same place among
//    their sums.
//  * Data are host memory.

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/collective_bytes.h"
#include "engine/comm/communicator.h"

namespace trireme::comm {

using Algorithm = ReduceAlgorithm;

// host_of_group_member: by index in the group; for kHierarchical alone, may be empty otherwise. staging:
// staging_bytes() of the largest operation (a longer one is an InternalError), as GroupOptions say.
std::unique_ptr<Communicator> make_algorithm_communicator(std::unique_ptr<Communicator> inner, Algorithm algorithm,
                                                          std::vector<int> host_of_group_member,
                                                          std::span<std::byte> staging,
                                                          const SegmentOptions& options = {});

}  // namespace trireme::comm
