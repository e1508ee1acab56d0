#pragma once

// What a member of a group sends and stages for a collective, by algorithm: pure arithmetic, in elements. It lies in
// base because plan/ (which predicts), engine/comm (which does it) and its counters read the same formulas.
// docs/algorithms/collectives.md says how each algorithm goes.

#include <cstdint>
#include <span>
#include <string_view>

#include "base/error.h"
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

// "ordered", "ring", "recursive-doubling", "hierarchical", "library"
std::string_view reduce_algorithm_name(ReduceAlgorithm algorithm);
Result<ReduceAlgorithm> parse_reduce_algorithm(std::string_view text);

enum class CollectiveKind { kSend, kAllReduce, kReduceScatter, kAllGather };
std::string_view collective_name(CollectiveKind kind);  // "send", "all-reduce", "reduce-scatter", "all-gather"

// Whether an algorithm does a collective itself, over sends and receives; else the backend does: its own default, or
// the communication library's (kLibrary).
bool is_own_of(ReduceAlgorithm algorithm, CollectiveKind kind);

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

// Reductions of one communicator over messages that may hold staging memory at once, in the backend's default
// algorithm.
inline constexpr int kStagedOperations = 2;

// Memory that a member of a backend over messages (engine/comm/message_world.h) needs for its default algorithm, so
// that reductions of up to `count` elements can run: of each that may hold memory at once, a window of segments from
// every other member, rounded up as an allocation is. Of the longest share, so the same for all members; a shorter
// reduction needs no more.
Bytes message_staging_bytes(std::int64_t count, std::int64_t element_bytes, int size, const SegmentOptions& options,
                            int staged_operations = kStagedOperations);

// Memory that a member holds for received partial sums while one collective runs: a number of slots (kRing and
// kHierarchical: twice the window; kRecursiveDoubling: the window) of one segment, or of the longest message if that
// is shorter. Nothing for collectives that the algorithm leaves to its backend. The same for all members.
Bytes staging_bytes(ReduceAlgorithm algorithm, CollectiveKind kind, std::int64_t count, std::int64_t element_bytes,
                    int size, const SegmentOptions& options);

}  // namespace trireme
