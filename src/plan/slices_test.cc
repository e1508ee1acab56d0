#include "plan/slices.h"

#include <map>

#include <gtest/gtest.h>

#include "base/check.h"
#include "model/test_configs.h"
#include "plan/test_random_layouts.h"

namespace trireme::plan {
namespace {

using model::Parameter;

// Adds one to every element that a local tensor holds of its parameter.
void cover(const Parameter& parameter, const LocalTensor& local, std::vector<int>& cells) {
  std::int64_t count = 0;
  for_each_element(cut_of(parameter, local.intervals), [&](std::int64_t row, std::int64_t column) {
    ++cells[static_cast<std::size_t>(row * parameter.columns() + column)];
    ++count;
  });
  EXPECT_EQ(count, local.elements()) << parameter.name;
}

// The line that must hold for any layout: the slices of all ranks tile every tensor exactly once, replicas counted.
TEST(Slices, OfAllRanksTileEveryTensorExactlyOnce) {
  int layouts = 0, beyond_kv_heads = 0, uneven_vocabulary = 0, tied_copies = 0;
  for (const RandomLayout& r : random_layouts(200, 4)) {
    const model::ParameterTable table = model::make_parameter_table(r.config);
    std::vector<std::vector<int>> owned, copies;
    std::vector<int> replicas(table.parameters.size(), 0);
    for (const Parameter& p : table.parameters) {
      owned.emplace_back(static_cast<std::size_t>(p.elements()), 0);
      copies.emplace_back(static_cast<std::size_t>(p.elements()), 0);
    }
    for (int rank = 0; rank < r.layout.world(); ++rank) {
      for (const ShardUnit& unit : shard_units(table, r.layout, rank)) {
        for (const LocalTensor& local : unit.tensors) {
          const auto p = static_cast<std::size_t>(local.parameter);
          cover(table.parameters[p], local, unit.tied_head ? copies[p] : owned[p]);
          if (!unit.tied_head) replicas[p] = local.tensor_replicas;
          tied_copies += unit.tied_head ? 1 : 0;
        }
      }
    }
    for (std::size_t p = 0; p < table.parameters.size(); ++p) {
      // Every replica of the data axis holds it once, on each tensor rank that shares the slice.
      const int times = r.layout.dp * replicas[p];
      for (int cell : owned[p]) ASSERT_EQ(cell, times) << table.parameters[p].name << " " << describe(r.layout);
      const int tied = table.parameters[p].also_used_by_head ? r.layout.dp : 0;
      for (int cell : copies[p]) ASSERT_EQ(cell, tied) << table.parameters[p].name;
    }
    ++layouts;
    beyond_kv_heads += r.layout.tp > r.config.kv_heads ? 1 : 0;
    uneven_vocabulary += r.config.vocabulary % r.layout.tp != 0 ? 1 : 0;
  }
  EXPECT_EQ(layouts, 200);
  EXPECT_GT(beyond_kv_heads, 10);
  EXPECT_GT(uneven_vocabulary, 10);
  EXPECT_GT(tied_copies, 10);
}

TEST(Slices, FlatBuffersAreTiledByShardsOfWholeScalarBlocks) {
  for (const RandomLayout& r : random_layouts(100, 5)) {
    const model::ParameterTable table = model::make_parameter_table(r.config);
    for (const ShardUnit& unit : shard_units(table, r.layout, r.layout.world() - 1)) {
      std::int64_t end = 0, payload = 0;
      for (const LocalTensor& tensor : unit.tensors) {
        EXPECT_EQ(tensor.offset % kScalarBlock, 0);
        EXPECT_GE(tensor.offset, end);
        end = tensor.offset + tensor.elements();
        payload += tensor.elements();
      }
      EXPECT_LE(end, unit.elements);
      EXPECT_EQ(payload, unit.payload);
      std::int64_t at = 0;
      for (int d = 0; d < r.layout.dp; ++d) {
        const Interval shard = zero_shard(unit, r.layout.dp, d);
        EXPECT_EQ(shard.begin, at);
        EXPECT_EQ(shard.length() % kScalarBlock, 0);
        at = shard.end;
      }
      EXPECT_EQ(at, unit.elements);
    }
  }
}

TEST(Slices, TheTiedHeadLiesAsTheEmbeddingDoes) {
  for (const RandomLayout& r : random_layouts(150, 6)) {
    if (!r.config.tied_embeddings || r.layout.dp == 1) continue;
    const model::ParameterTable table = model::make_parameter_table(r.config);
    const int last_stage = rank_of(r.layout, {.tp = 0, .pp = r.layout.pp - 1, .dp = 0});
    const ShardUnit embedding = shard_units(table, r.layout, rank_of(r.layout, {})).front();
    const ShardUnit tied = shard_units(table, r.layout, last_stage).back();
    ASSERT_TRUE(tied.tied_head);
    EXPECT_EQ(tied.elements, embedding.elements);
    EXPECT_EQ(tied.tensors[0].offset, embedding.tensors[0].offset);
    EXPECT_EQ(tied.tensors[0].shape, embedding.tensors[0].shape);
    EXPECT_EQ(tied.holds_weights, r.layout.pp > 1);
    EXPECT_FALSE(tied.holds_moments);
  }
}

TEST(Slices, WhatTheTiedPairExchangesTilesTheEmbedding) {
  for (const RandomLayout& r : random_layouts(100, 12)) {
    if (!r.config.tied_embeddings) continue;
    const model::ParameterTable table = model::make_parameter_table(r.config);
    const ShardUnit embedding = shard_units(table, r.layout, 0).front();
    std::int64_t parts = 0;
    for (int d = 0; d < r.layout.dp; ++d) {
      const std::int64_t part = tied_elements(embedding, r.layout, d, true);
      EXPECT_GE(part, 0);
      parts += part;
      EXPECT_EQ(tied_elements(embedding, r.layout, d, false), embedding.tensors[0].elements());
    }
    EXPECT_EQ(parts, embedding.tensors[0].elements()) << describe(r.layout);
  }
}

TEST(Slices, FusedQueryKeyValueIsCutByHeads) {
  model::Config c = model::small_gpt2();
  c.hidden = 8;
  c.heads = c.kv_heads = 4;
  c.head_dim = 2;
  const model::ParameterTable table = model::make_parameter_table(c);
  const Parameter& qkv = table.parameters[static_cast<std::size_t>(table.find(1, model::Role::kQkvWeight))];
  EXPECT_EQ(tensor_intervals(qkv, 2, 1), (std::vector<Interval>{{4, 8}, {12, 16}, {20, 24}}));
}

TEST(Slices, ReplicatedKvHeadsHavePartialGradients) {
  model::Config c = model::small_llama();
  c.heads = 8;
  c.head_dim = 2;
  const model::ParameterTable table = model::make_parameter_table(c);
  const auto state = [&](model::Role role, Layout layout) {
    return tensor_gradient_state(table.parameters[static_cast<std::size_t>(table.find(1, role))], layout);
  };
  EXPECT_EQ(state(model::Role::kKeyWeight, {.tp = 2}), model::AxisState::kSharded);
  EXPECT_EQ(state(model::Role::kKeyWeight, {.tp = 4}), model::AxisState::kPartial);
  EXPECT_EQ(state(model::Role::kQueryWeight, {.tp = 4}), model::AxisState::kSharded);
  EXPECT_EQ(state(model::Role::kNorm1Weight, {.tp = 2}), model::AxisState::kReplicated);
  EXPECT_EQ(state(model::Role::kNorm1Weight, {.tp = 2, .sequence_parallel = true}), model::AxisState::kPartial);
  EXPECT_EQ(state(model::Role::kNorm1Weight, {}), model::AxisState::kReplicated);
}

}  // namespace
}  // namespace trireme::plan
