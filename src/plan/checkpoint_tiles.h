#pragma once

// Which part of the training state a rank writes into a checkpoint and reads from one: boxes of logical tensors. What
// is written is cut into tiles of at most kTileElements, the unit that a checksum guards and that a reader holds at
// once.

#include <cstdint>
#include <string_view>
#include <vector>

#include "model/parameters.h"
#include "plan/slices.h"

namespace trireme::plan {

// The logical tensors of a parameter. Weights are those that the optimizer updates (fp32 master weights where a run
// computes in fewer bits).
enum class StateKind { kWeight, kFirstMoment, kSecondMoment };
inline constexpr StateKind kStateKinds[] = {StateKind::kWeight, StateKind::kFirstMoment, StateKind::kSecondMoment};
std::string_view state_kind_name(StateKind kind);  // "weight", "exp_avg", "exp_avg_sq"

// Rows and columns of a logical tensor; a vector has its elements as rows, and one column.
struct TensorBox {
  Interval rows;
  Interval columns;
  std::int64_t elements() const { return rows.length() * columns.length(); }
  friend bool operator==(const TensorBox&, const TensorBox&) = default;
};
TensorBox common(const TensorBox& a, const TensorBox& b);

// A box and where a rank has it: element (row, column) is element offset + (row - first row) * stride + (column - first
// column) of its shard unit's flat buffer.
struct LocalBox {
  int parameter = 0;   // index into the table
  int shard_unit = 0;  // index into shard_units() of the rank
  TensorBox box;
  std::int64_t offset = 0;
  std::int64_t stride = 0;
};

// `part`, elements of a local tensor, as boxes in the order of its elements: none empty, together exactly the part.
std::vector<LocalBox> boxes_of(const model::Parameter& parameter, const LocalTensor& local, int shard_unit,
                               Interval part);

// What a rank writes, of each state alike: every element of every parameter is written by exactly one rank. Replicas
// share the work whatever the ZeRO stage; of tensor ranks that hold the same slice the first one writes; a tied head's
// copy is not written. Each box is a tile: at most kTileColumns wide and kTileElements large. In order of the table.
inline constexpr std::int64_t kTileColumns = 1024;
inline constexpr std::int64_t kTileElements = 1024 * kTileColumns;
std::vector<LocalBox> written_tiles(const model::ParameterTable& table, const Layout& layout, int rank);

// What a rank needs to go on: the weights that it keeps (a tied head's copy too), the moments of what it updates.
std::vector<LocalBox> read_boxes(const model::ParameterTable& table, const Layout& layout, int rank, StateKind kind);

// Elements of the largest tile that any layout writes of this model.
std::int64_t largest_tile(const model::ParameterTable& table);

// What a rank has for checkpoints, booked through the run: room for one tile, read or written at a time (also where a
// run only starts from a checkpoint); or for all that it writes, so that training goes on while that is on its way.
enum class CheckpointStaging { kNone, kTile, kSnapshot };
Bytes checkpoint_staging_bytes(const model::ParameterTable& table, const Layout& layout, int rank,
                               CheckpointStaging staging);

}  // namespace trireme::plan
