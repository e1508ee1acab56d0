#pragma once

// The work of an operation among threads, once all of its ranks have come: it falls into segments that any one thread
// does whole, reading and writing the buffers of all ranks. Segments do not overlap, so they may be done at once and in
// any order.
//
//   all-reduce       the elements of the segment from all buffers, added in order, into all buffers
//   reduce-scatter   elements of one rank's share from all buffers, added in order, into that rank's
//   all-gather       elements of one rank's share from its buffer to all others
//   broadcast        elements of the root's buffer to all others
//   send, receive    elements of the first buffer to the second
//   barrier          none

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/comm/call.h"

namespace trireme::comm {

// The longest segment, in bytes of one buffer: long enough that a claim costs nothing beside it, short enough that a
// rank soon finds its operation done.
inline constexpr std::int64_t kSegmentBytes = 64 << 10;

// Of a group of `size` ranks; a message is between two. Some may be empty.
std::int64_t segments_of(const Call& call, int size);

// data: the buffers of the group by index, those of the sender and of the receiver for a message.
void work_on_segment(const Call& call, std::span<std::byte* const> data, std::int64_t number);

}  // namespace trireme::comm
