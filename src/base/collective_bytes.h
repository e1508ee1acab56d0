#pragma once

// What a member of a group sends and stages for a collective, by algorithm: pure arithmetic, in elements. It lies in
// base because plan/ (which predicts), engine/comm (which does it) and its counters read the same formulas.
// docs/algorithms/collectives.md says how each algorithm goes.

#include <cstdint>
#include <span>

#include "base/units.h"

namespace trireme {

// How sums over ranks are formed.
enum class ReduceAlgorithm {
  kOrdered,            // each backend's default: direct reduce-scatter, ring all-gather; the canonical order of sums
  kRing,               // partial sums travel around a circle
  kRecursiveDoubling,  // whole buffers are exchanged with partners 1, 2, 4, ... away
  kHierarchical,       // inside each host to its first rank; a ring over the first ranks; inside each host from there
  kLibrary,            // the communication library's own; what it sends is not known and counts as kOrdered's
};

enum class CollectiveKind { kAllReduce, kReduceScatter, kAllGather, kSend };

// Elements that group member `index` of `size` sends for one collective over `count` elements. Shares of members are
// [i n / N, (i + 1) n / N). host_of: by member, the number of its host; read for kHierarchical alone, may be empty
// otherwise. A group of one sends nothing. Algorithms change the all-reduce; kRing also the reduce-scatter, whose bytes
// stay the same.
std::int64_t sent_elements(ReduceAlgorithm algorithm, CollectiveKind kind, std::int64_t count, int index, int size,
                           std::span<const int> host_of = {});

// How an algorithm over messages cuts its buffers.
struct SegmentOptions {
  Bytes segment{256 << 10};  // the largest message; a multiple of 8 bytes
  int window = 4;            // messages under way at once, in each direction
};

// Memory that a member holds for received partial sums while one collective runs: a number of slots (kRing and
// kHierarchical: twice the window; kRecursiveDoubling: the window) of one segment, or of the longest message if that
// is shorter. Nothing for collectives that the algorithm leaves to its backend. The same for all members.
Bytes staging_bytes(ReduceAlgorithm algorithm, CollectiveKind kind, std::int64_t count, std::int64_t element_bytes,
                    int size, const SegmentOptions& options);

}  // namespace trireme
