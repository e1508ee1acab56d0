#pragma once

// Which slice of which tensor a rank holds, and where it lies in the rank's flat buffers.
//
// Buffers are flat by shard unit: one for the embedding, for each decoder layer, for the head (final norm, output
// projection), and one for the head's use of a tied embedding. In a flat buffer tensors follow each other, each start
// on a multiple of kScalarBlock elements, the end padded to a multiple of dp * kScalarBlock, so that data-parallel
// rank d owns elements [d n / dp, (d + 1) n / dp) and no scalar block (of the gradient norm) is ever cut.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/units.h"
#include "model/parameters.h"
#include "plan/layout.h"

namespace trireme::plan {

// Elements whose squares the gradient norm sums in floating point before the integer accumulator takes over.
inline constexpr std::int64_t kScalarBlock = 256;

struct Interval {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t length() const { return end - begin; }
  friend bool operator==(const Interval&, const Interval&) = default;
};

// What two intervals have in common; where that is nothing, an empty one at the later begin.
inline Interval common(const Interval& a, const Interval& b) {
  const std::int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

// The intervals of the split dimension that tensor-parallel rank tp_index of tp holds, ascending; one interval a block.
// The whole dimension if the tensor is not split.
std::vector<Interval> tensor_intervals(const model::Parameter& parameter, int tp, int tp_index);

// The rows and columns of a tensor that an interval list stands for: the list in its dimension, all of the other.
struct TensorCut {
  std::vector<Interval> rows;
  std::vector<Interval> columns;
};
TensorCut cut_of(const model::Parameter& parameter, const std::vector<Interval>& intervals);
// Calls visit(row, column), global, for every element of a cut in the order in which the local tensor holds them.
template <class Visit>
void for_each_element(const TensorCut& cut, const Visit& visit) {
  for (const Interval& rows : cut.rows) {
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      for (const Interval& columns : cut.columns) {
        for (std::int64_t column = columns.begin; column < columns.end; ++column) visit(row, column);
      }
    }
  }
}

struct LocalTensor {
  int parameter = 0;                // index into the table
  std::vector<Interval> intervals;  // of dimension `split.dimension`, or of dimension 0 (whole) if replicated
  std::vector<std::int64_t> shape;  // local
  std::int64_t offset = 0;          // elements, into the shard unit's flat buffer
  int tensor_replicas = 1;          // tensor-parallel ranks that hold the same slice (tp where replicated)
  std::int64_t elements() const;
};

struct ShardUnit {
  int unit = 0;
  bool tied_head = false;     // the head's use of the tied embedding
  bool holds_weights = true;  // false: tied head on the stage that also holds the embedding (reads that one)
  bool holds_moments = true;  // false: tied head (the embedding's owner updates)
  std::vector<LocalTensor> tensors;
  std::int64_t elements = 0;  // flat, padding included
  std::int64_t payload = 0;   // without padding
};

// The shard units of a rank, in model order; a tied head's comes last.
std::vector<ShardUnit> shard_units(const model::ParameterTable& table, const Layout& layout, int rank);

// The part of a flat buffer that data-parallel index dp_index owns under ZeRO >= 1.
Interval zero_shard(const ShardUnit& unit, int dp, int dp_index);

// The part of a shard unit's flat buffer whose weights data-parallel index dp_index keeps between uses: its shard under
// ZeRO 3, else all. And the part of one of its tensors in it, in elements of the local tensor; may be empty.
Interval kept_weights(const ShardUnit& unit, const Layout& layout, int dp_index);
Interval kept_weights(const ShardUnit& unit, const LocalTensor& tensor, const Layout& layout, int dp_index);

// The part that it updates, and has moments of: its shard under ZeRO >= 1, else all.
Interval updated_part(const ShardUnit& unit, const Layout& layout, int dp_index);

// Elements of the token embedding that the two holders of a tied one exchange: all of the local tensor, or (`sharded`
// and dp > 1) the part of it inside the owner's shard, which may be empty. `unit` is the embedding's own or the tied
// head's, which lie alike.
std::int64_t tied_elements(const ShardUnit& unit, const Layout& layout, int dp_index, bool sharded);

// How the gradient of a local tensor stands along the tensor axis before reduction (from the declaration).
model::AxisState tensor_gradient_state(const model::Parameter& parameter, const Layout& layout);

}  // namespace trireme::plan
