#include "plan/slices.h"

#include <algorithm>

#include "base/check.h"

namespace trireme::plan {
namespace {

using model::AxisState;
using model::Parameter;
using model::PieceKind;
using model::SplitBlock;

// Pieces [first, end) of a block that a tensor-parallel rank holds.
Interval pieces_of(const SplitBlock& block, int tp, int tp_index) {
  if (block.kind == PieceKind::kKvHeads && tp > block.count) {
    const std::int64_t head = tp_index / (tp / block.count);
    return {head, head + 1};
  }
  return {block.count * tp_index / tp, block.count * (tp_index + 1) / tp};
}

bool beyond_kv_heads(const Parameter& parameter, int tp) {
  for (const SplitBlock& block : parameter.split.blocks) {
    if (block.kind == PieceKind::kKvHeads && tp > block.count) return true;
  }
  return false;
}

int replicas_of(const Parameter& parameter, int tp) {
  if (!parameter.split.split()) return tp;
  if (!beyond_kv_heads(parameter, tp)) return 1;
  return tp / static_cast<int>(parameter.split.blocks.back().count);
}

LocalTensor local_tensor(const model::ParameterTable& table, int index, const Layout& layout, int tp_index) {
  const Parameter& parameter = table.parameters[static_cast<std::size_t>(index)];
  LocalTensor local{.parameter = index,
                    .intervals = tensor_intervals(parameter, layout.tp, tp_index),
                    .shape = parameter.shape,
                    .tensor_replicas = replicas_of(parameter, layout.tp)};
  const auto dimension = static_cast<std::size_t>(parameter.split.split() ? parameter.split.dimension : 0);
  local.shape[dimension] = 0;
  for (const Interval& interval : local.intervals) local.shape[dimension] += interval.length();
  return local;
}

// Lays the tensors out behind each other, offsets from 0.
void place(ShardUnit& unit, int dp) {
  std::int64_t offset = 0;
  for (LocalTensor& tensor : unit.tensors) {
    tensor.offset = offset;
    unit.payload += tensor.elements();
    offset = round_up(offset + tensor.elements(), kScalarBlock);
  }
  unit.elements = round_up(offset, kScalarBlock * dp);
}

ShardUnit unit_of(const model::ParameterTable& table, const Layout& layout, int tp_index, int unit,
                  Interval parameters) {
  ShardUnit shard{.unit = unit, .tensors = {}};
  for (std::int64_t p = parameters.begin; p < parameters.end; ++p) {
    shard.tensors.push_back(local_tensor(table, static_cast<int>(p), layout, tp_index));
  }
  place(shard, layout.dp);
  return shard;
}

// Laid out like the embedding's own unit, of which the token embedding is the first tensor: so their shards are the
// same elements, and the sum of the two accumulators needs no other rank's part.
ShardUnit tied_head(const model::ParameterTable& table, const Layout& layout, int tp_index) {
  const int token_embedding = table.find(0, model::Role::kTokenEmbedding);
  TRIREME_CHECK_EQ(token_embedding, 0);
  ShardUnit tied = unit_of(table, layout, tp_index, model::unit_count(table.config) - 1, {0, 1});
  tied.tied_head = true;
  tied.holds_weights = layout.pp > 1;
  tied.holds_moments = false;
  if (layout.dp > 1) {
    std::int64_t end = 0;
    while (end < static_cast<std::int64_t>(table.parameters.size()) &&
           table.parameters[static_cast<std::size_t>(end)].unit == 0) {
      ++end;
    }
    tied.elements = unit_of(table, layout, tp_index, 0, {0, end}).elements;
  }
  return tied;
}

}  // namespace

std::vector<Interval> tensor_intervals(const Parameter& parameter, int tp, int tp_index) {
  if (!parameter.split.split()) return {{0, parameter.shape[0]}};
  std::vector<Interval> intervals;
  std::int64_t begin = 0;
  for (const SplitBlock& block : parameter.split.blocks) {
    const Interval pieces = pieces_of(block, tp, tp_index);
    intervals.push_back({begin + pieces.begin * block.piece, begin + pieces.end * block.piece});
    begin += block.count * block.piece;
  }
  return intervals;
}

TensorCut cut_of(const Parameter& parameter, const std::vector<Interval>& intervals) {
  if (parameter.split.dimension == 1) return {.rows = {{0, parameter.rows()}}, .columns = intervals};
  return {.rows = intervals, .columns = {{0, parameter.columns()}}};
}

std::int64_t LocalTensor::elements() const {
  std::int64_t product = 1;
  for (std::int64_t extent : shape) product = checked_multiply(product, extent);
  return product;
}

std::vector<ShardUnit> shard_units(const model::ParameterTable& table, const Layout& layout, int rank) {
  const Coordinates at = coordinates_of(layout, rank);
  std::vector<std::int64_t> first(static_cast<std::size_t>(model::unit_count(table.config)) + 1, 0);
  for (const Parameter& parameter : table.parameters) ++first[static_cast<std::size_t>(parameter.unit) + 1];
  for (std::size_t i = 1; i < first.size(); ++i) first[i] += first[i - 1];

  std::vector<ShardUnit> units;
  bool holds_head = false;
  for (const Chunk& chunk : model_chunks(table.config, layout)) {
    if (chunk.stage != at.pp) continue;
    for (int unit = chunk.first_unit; unit < chunk.end_unit; ++unit) {
      const auto u = static_cast<std::size_t>(unit);
      units.push_back(unit_of(table, layout, at.tp, unit, {first[u], first[u + 1]}));
      holds_head = holds_head || model::unit_kind(table.config, unit) == model::UnitKind::kHead;
    }
  }
  if (table.config.tied_embeddings && holds_head) units.push_back(tied_head(table, layout, at.tp));
  return units;
}

Interval zero_shard(const ShardUnit& unit, int dp, int dp_index) {
  const std::int64_t each = divide_exact(unit.elements, dp);
  return {each * dp_index, each * (dp_index + 1)};
}

Interval updated_part(const ShardUnit& unit, const Layout& layout, int dp_index) {
  if (layout.zero == 0) return {0, unit.elements};
  return zero_shard(unit, layout.dp, dp_index);
}

Interval kept_weights(const ShardUnit& unit, const Layout& layout, int dp_index) {
  if (layout.zero < 3 || layout.dp == 1) return {0, unit.elements};
  return zero_shard(unit, layout.dp, dp_index);
}

Interval kept_weights(const ShardUnit& unit, const LocalTensor& tensor, const Layout& layout, int dp_index) {
  const Interval kept = kept_weights(unit, layout, dp_index);
  return common({0, tensor.elements()}, {kept.begin - tensor.offset, kept.end - tensor.offset});
}

std::int64_t tied_elements(const ShardUnit& unit, const Layout& layout, int dp_index, bool sharded) {
  const std::int64_t whole = unit.tensors.front().elements();
  if (!sharded || layout.dp == 1) return whole;
  return common({0, whole}, zero_shard(unit, layout.dp, dp_index)).length();
}

AxisState tensor_gradient_state(const Parameter& parameter, const Layout& layout) {
  if (layout.tp == 1) return AxisState::kReplicated;
  if (beyond_kv_heads(parameter, layout.tp)) return AxisState::kPartial;
  return layout.sequence_parallel ? parameter.gradient.sequence_parallel : parameter.gradient.plain;
}

}  // namespace trireme::plan
