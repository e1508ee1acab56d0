#include "plan/checkpoint_tiles.h"

#include <map>
#include <set>

#include <gtest/gtest.h>

#include "plan/memory.h"
#include "plan/test_random_layouts.h"

namespace trireme::plan {
namespace {

using Element = std::pair<std::int64_t, std::int64_t>;  // row, column

// Calls visit(row, column, place in the flat buffer) for every element of a box.
template <class Visit>
void for_each(const LocalBox& box, const Visit& visit) {
  for (std::int64_t row = box.box.rows.begin; row < box.box.rows.end; ++row) {
    for (std::int64_t column = box.box.columns.begin; column < box.box.columns.end; ++column) {
      visit(row, column, box.offset + (row - box.box.rows.begin) * box.stride + column - box.box.columns.begin);
    }
  }
}

// Where a local tensor's elements lie, from the slices' own walk.
std::map<Element, std::int64_t> places_of(const model::Parameter& parameter, const LocalTensor& local) {
  std::map<Element, std::int64_t> places;
  std::int64_t at = local.offset;
  for_each_element(cut_of(parameter, local.intervals), [&](std::int64_t row, std::int64_t column) {
    places[{row, column}] = at++;
  });
  return places;
}

TEST(CheckpointTiles, ABoxListIsThePartAndLiesWhereTheSlicesSay) {
  for (const RandomLayout& r : random_layouts(60, 21)) {
    const model::ParameterTable table = model::make_parameter_table(r.config);
    const int rank = r.layout.world() - 1;
    const std::vector<ShardUnit> units = shard_units(table, r.layout, rank);
    for (const LocalTensor& local : units.front().tensors) {
      const model::Parameter& parameter = table.parameters[static_cast<std::size_t>(local.parameter)];
      const std::map<Element, std::int64_t> places = places_of(parameter, local);
      const std::int64_t n = local.elements();
      for (const Interval part : {Interval{0, n}, Interval{0, 1}, Interval{n / 3, n / 2}, Interval{n / 3, n},
                                  Interval{n - 1, n}, Interval{n / 2, n / 2}}) {
        std::int64_t next = part.begin;
        for (const LocalBox& box : boxes_of(parameter, local, 0, part)) {
          ASSERT_GT(box.box.elements(), 0);
          next += box.box.elements();
          for_each(box, [&](std::int64_t row, std::int64_t column, std::int64_t place) {
            const auto found = places.find({row, column});
            ASSERT_NE(found, places.end()) << parameter.name;
            ASSERT_EQ(found->second, place) << parameter.name;
            ASSERT_GE(place - local.offset, part.begin);
            ASSERT_LT(place - local.offset, part.end);
          });
        }
        ASSERT_EQ(next, part.end) << parameter.name;
      }
    }
  }
}

TEST(CheckpointTiles, EveryElementIsWrittenByOneRank) {
  for (const RandomLayout& r : random_layouts(120, 22)) {
    const model::ParameterTable table = model::make_parameter_table(r.config);
    std::vector<std::set<Element>> written(table.parameters.size());
    for (int rank = 0; rank < r.layout.world(); ++rank) {
      int parameter = 0;
      for (const LocalBox& tile : written_tiles(table, r.layout, rank)) {
        ASSERT_GE(tile.parameter, parameter);  // in order of the table
        parameter = tile.parameter;
        for_each(tile, [&](std::int64_t row, std::int64_t column, std::int64_t) {
          ASSERT_TRUE(written[static_cast<std::size_t>(parameter)].insert({row, column}).second);
        });
      }
    }
    for (std::size_t p = 0; p < written.size(); ++p) {
      ASSERT_EQ(std::ssize(written[p]), table.parameters[p].elements()) << table.parameters[p].name;
    }
  }
}

TEST(CheckpointTiles, ARankReadsWhatItKeepsAndWhatItUpdates) {
  for (const RandomLayout& r : random_layouts(120, 23)) {
    const model::ParameterTable table = model::make_parameter_table(r.config);
    const int rank = r.layout.world() / 2;
    const std::vector<ShardUnit> units = shard_units(table, r.layout, rank);
    const int dp_index = coordinates_of(r.layout, rank).dp;
    for (StateKind kind : kStateKinds) {
      std::vector<std::set<std::int64_t>> read(units.size());
      for (const LocalBox& box : read_boxes(table, r.layout, rank, kind)) {
        for_each(box, [&](std::int64_t, std::int64_t, std::int64_t place) {
          ASSERT_TRUE(read[static_cast<std::size_t>(box.shard_unit)].insert(place).second);
        });
      }
      for (std::size_t u = 0; u < units.size(); ++u) {
        const bool weights = kind == StateKind::kWeight;
        std::int64_t wanted = 0;
        if (weights ? units[u].holds_weights : units[u].holds_moments) {
          const Interval part =
              weights ? kept_weights(units[u], r.layout, dp_index) : updated_part(units[u], r.layout, dp_index);
          for (const LocalTensor& local : units[u].tensors) {
            wanted += common(part, {local.offset, local.offset + local.elements()}).length();
          }
        }
        ASSERT_EQ(std::ssize(read[u]), wanted);
      }
    }
  }
}

TEST(CheckpointTiles, TilesAreSmallAndTheStagingHoldsThem) {
  model::Config config = random_layouts(1, 1).front().config;
  config.family = model::Family::kLlama;
  config.vocabulary = 5000;
  config.hidden = 2048 + 512;
  config.ffn = 3000;
  config.heads = config.kv_heads = 20;
  config.head_dim = 128;
  config.layers = 2;
  const model::ParameterTable table = model::make_parameter_table(config);
  EXPECT_EQ(largest_tile(table), kTileElements);
  for (int tp : {1, 4}) {
    const Layout layout{.tp = tp, .dp = 3, .zero = 1};
    for (int rank = 0; rank < layout.world(); ++rank) {
      std::int64_t sum = 0;
      for (const LocalBox& tile : written_tiles(table, layout, rank)) {
        ASSERT_LE(tile.box.columns.length(), kTileColumns);
        ASSERT_LE(tile.box.elements(), kTileElements);
        sum += tile.box.elements();
      }
      EXPECT_EQ(checkpoint_staging_bytes(table, layout, rank, CheckpointStaging::kSnapshot).count, 12 * sum);
      EXPECT_EQ(checkpoint_staging_bytes(table, layout, rank, CheckpointStaging::kTile).count, 4 * kTileElements);
      EXPECT_EQ(checkpoint_staging_bytes(table, layout, rank, CheckpointStaging::kNone).count, 0);
    }
  }
}

}  // namespace
}  // namespace trireme::plan
