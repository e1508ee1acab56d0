#include "plan/checkpoint_tiles.h"

#include <array>

#include "base/check.h"
#include "base/dtype.h"

namespace trireme::plan {
namespace {

std::int64_t length_of(const std::vector<Interval>& intervals) {
  std::int64_t sum = 0;
  for (const Interval& interval : intervals) sum += interval.length();
  return sum;
}

// Where `range`, counted along the concatenated intervals, lies: {local begin, global interval} of each part.
struct MappedInterval {
  std::int64_t local = 0;
  Interval global;
};
std::vector<MappedInterval> map_range(const std::vector<Interval>& intervals, Interval range) {
  std::vector<MappedInterval> mapped;
  std::int64_t at = 0;
  for (const Interval& interval : intervals) {
    const Interval part = common(range, {at, at + interval.length()});
    if (part.length() > 0) {
      mapped.push_back({part.begin, {interval.begin + part.begin - at, interval.begin + part.end - at}});
    }
    at += interval.length();
  }
  return mapped;
}

// Rows and columns of the local tensor.
struct LocalRange {
  Interval rows;
  Interval columns;
};
// An interval of elements of rows of `width`: a part of a row, whole rows, a part of a row.
std::vector<LocalRange> ranges_of(Interval part, std::int64_t width) {
  std::vector<LocalRange> ranges;
  const auto add = [&](std::int64_t begin, std::int64_t end) {
    if (begin >= end) return;
    const std::int64_t row = begin / width;
    const bool whole = begin % width == 0 && end % width == 0;
    ranges.push_back(whole ? LocalRange{{row, end / width}, {0, width}}
                           : LocalRange{{row, row + 1}, {begin - row * width, end - row * width}});
  };
  const std::int64_t first_whole = std::min(round_up(part.begin, width), part.end);
  const std::int64_t last_whole = std::max(first_whole, part.end / width * width);
  add(part.begin, first_whole);
  add(first_whole, last_whole);
  add(last_whole, part.end);
  return ranges;
}

std::int64_t tile_rows(std::int64_t columns) { return std::max<std::int64_t>(1, kTileElements / columns); }

void add_tiles(const LocalBox& whole, std::vector<LocalBox>& tiles) {
  const TensorBox& box = whole.box;
  const std::int64_t step = tile_rows(std::min(kTileColumns, box.columns.length()));
  for (std::int64_t row = box.rows.begin; row < box.rows.end; row += step) {
    for (std::int64_t column = box.columns.begin; column < box.columns.end; column += kTileColumns) {
      LocalBox tile = whole;
      tile.box = {{row, std::min(row + step, box.rows.end)},
                  {column, std::min(column + kTileColumns, box.columns.end)}};
      tile.offset += (row - box.rows.begin) * whole.stride + column - box.columns.begin;
      tiles.push_back(tile);
    }
  }
}

// The part of a unit's flat buffer that lies in one of its tensors, in elements of the local tensor.
Interval inside(const LocalTensor& local, Interval of_unit) {
  const Interval part = common(of_unit, {local.offset, local.offset + local.elements()});
  return {part.begin - local.offset, part.end - local.offset};
}

}  // namespace

std::string_view state_kind_name(StateKind kind) {
  constexpr std::array<std::string_view, 3> kNames = {"weight", "exp_avg", "exp_avg_sq"};
  return kNames[static_cast<std::size_t>(kind)];
}

TensorBox common(const TensorBox& a, const TensorBox& b) {
  return {common(a.rows, b.rows), common(a.columns, b.columns)};
}

std::vector<LocalBox> boxes_of(const model::Parameter& parameter, const LocalTensor& local, int shard_unit,
                               Interval part) {
  if (part.length() == 0) return {};
  TRIREME_CHECK(part.begin >= 0 && part.end <= local.elements(), "elements {} to {} of {}", part.begin, part.end,
                parameter.name);
  const TensorCut cut = cut_of(parameter, local.intervals);
  const std::int64_t width = length_of(cut.columns);
  std::vector<LocalBox> boxes;
  for (const LocalRange& range : ranges_of(part, width)) {
    for (const MappedInterval& rows : map_range(cut.rows, range.rows)) {
      for (const MappedInterval& columns : map_range(cut.columns, range.columns)) {
        boxes.push_back({.parameter = local.parameter,
                         .shard_unit = shard_unit,
                         .box = {rows.global, columns.global},
                         .offset = local.offset + rows.local * width + columns.local,
                         .stride = width});
      }
    }
  }
  return boxes;
}

std::vector<LocalBox> written_tiles(const model::ParameterTable& table, const Layout& layout, int rank) {
  const Coordinates at = coordinates_of(layout, rank);
  const std::vector<ShardUnit> units = shard_units(table, layout, rank);
  std::vector<LocalBox> tiles;
  for (int index = 0; index < static_cast<int>(units.size()); ++index) {
    const ShardUnit& unit = units[static_cast<std::size_t>(index)];
    if (unit.tied_head) continue;
    for (const LocalTensor& local : unit.tensors) {
      if (at.tp % local.tensor_replicas != 0) continue;
      const Interval part = inside(local, zero_shard(unit, layout.dp, at.dp));
      const model::Parameter& parameter = table.parameters[static_cast<std::size_t>(local.parameter)];
      for (const LocalBox& box : boxes_of(parameter, local, index, part)) add_tiles(box, tiles);
    }
  }
  return tiles;
}

std::vector<LocalBox> read_boxes(const model::ParameterTable& table, const Layout& layout, int rank, StateKind kind) {
  const int dp_index = coordinates_of(layout, rank).dp;
  const bool weights = kind == StateKind::kWeight;
  const std::vector<ShardUnit> units = shard_units(table, layout, rank);
  std::vector<LocalBox> boxes;
  for (int index = 0; index < static_cast<int>(units.size()); ++index) {
    const ShardUnit& unit = units[static_cast<std::size_t>(index)];
    if (weights ? !unit.holds_weights : !unit.holds_moments) continue;
    const Interval part = weights ? kept_weights(unit, layout, dp_index) : updated_part(unit, layout, dp_index);
    for (const LocalTensor& local : unit.tensors) {
      const model::Parameter& parameter = table.parameters[static_cast<std::size_t>(local.parameter)];
      const std::vector<LocalBox> more = boxes_of(parameter, local, index, inside(local, part));
      boxes.insert(boxes.end(), more.begin(), more.end());
    }
  }
  return boxes;
}

std::int64_t largest_tile(const model::ParameterTable& table) {
  std::int64_t largest = 0;
  for (const model::Parameter& parameter : table.parameters) {
    const std::int64_t columns = std::min(kTileColumns, parameter.columns());
    largest = std::max(largest, std::min(kTileElements, parameter.rows() * columns));
  }
  return largest;
}

Bytes checkpoint_staging_bytes(const model::ParameterTable& table, const Layout& layout, int rank,
                               CheckpointStaging staging) {
  if (staging == CheckpointStaging::kNone) return Bytes{};
  std::int64_t elements = largest_tile(table);
  if (staging == CheckpointStaging::kSnapshot) {
    std::int64_t written = 0;
    for (const LocalBox& tile : written_tiles(table, layout, rank)) written += tile.box.elements();
    elements = std::max(elements, checked_multiply(written, std::ssize(kStateKinds)));
  }
  return Bytes{checked_multiply(elements, dtype_size(DType::kF32))};
}

}  // namespace trireme::plan
