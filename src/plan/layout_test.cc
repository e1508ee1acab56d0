#include "plan/layout.h"

#include <numeric>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "model/test_configs.h"
#include "plan/test_random_layouts.h"

namespace trireme::plan {
namespace {

model::Config llama() {
  model::Config c = model::small_llama();
  c.layers = 10;
  c.hidden = 32;
  c.heads = 8;
  c.ffn = 48;
  return c;
}

const Batch kBatch{.global_batch = 32, .micro_batch = 1, .sequence = 16};

struct Refused {
  const char* option;
  Layout layout;
  Batch batch = kBatch;
  const char* nearest = "";
};

TEST(CheckLayout, RefusesWithOptionRuleAndNearestLegalValues) {
  const std::vector<Refused> all = {
      {"layout.tp", {.tp = 3}, kBatch, "2, 4"},
      {"layout.tp", {.tp = 16}, kBatch, "8"},
      {"layout.tp", {.tp = 0}, kBatch, "1"},
      {"layout.pp", {.pp = -1}, kBatch, "1"},
      {"layout.dp", {.dp = 0}, kBatch, "1"},
      {"layout.dp", {.tp = 8, .dp = 1 << 23}, kBatch, "2097152"},
      {"layout.tp", {.tp = 1 << 30}, kBatch, "16777216"},
      {"layout.pp", {.tp = 4, .pp = 1 << 23, .dp = 1 << 23}, kBatch, "4194304"},
      {"layout.pp", {.pp = 11}, kBatch, "10"},
      {"layout.pp", {.pp = 4, .interleave = 3, .schedule = ScheduleKind::kInterleaved}, kBatch, "3"},
      {"layout.interleave", {.pp = 2, .interleave = 2}, kBatch, "interleaved"},
      {"layout.interleave", {.interleave = 2, .schedule = ScheduleKind::kInterleaved}, kBatch, "1"},
      {"layout.zero", {.zero = 4}, kBatch, "3"},
      {"layout.zero", {.zero = -1}, kBatch, "0"},
      {"layout.sequence_parallel", {.sequence_parallel = true}, kBatch, "false"},
      {"layout.prefetch", {.prefetch = 0}, kBatch, "1"},
      {"layout.bucket", {.bucket = -1}, kBatch, "0"},
      {"layout.bucket", {.dp = 2, .reduce = ReduceWhen::kMicrobatch, .bucket = 10}, kBatch, "0"},
      {"layout.interleave", {.pp = 2, .interleave = 11, .schedule = ScheduleKind::kInterleaved}, kBatch, "10"},
      {"layout.chunk_layers", {.pp = 2, .chunk_layers = {5, 4}}, kBatch, "5, 5"},
      {"layout.chunk_layers", {.pp = 2, .chunk_layers = {10, 0}}, kBatch, "5, 5"},
      {"layout.chunk_layers", {.pp = 2, .chunk_layers = {10}}, kBatch, "5, 5"},
      {"train.sequence", {}, {32, 1, 65}, "64"},
      {"train.sequence", {.tp = 2, .sequence_parallel = true}, {32, 1, 15}, "14, 16"},
      {"train.sequence", {}, {32, 1, 0}, "1"},
      {"train.sequence", {}, {32, 1, std::int64_t{1} << 62}, "16777216"},
      {"train.micro_batch", {}, {32, 0, 16}, "1"},
      {"train.micro_batch", {}, {32, std::int64_t{1} << 62, 16}, "16777216"},
      {"train.global_batch", {.dp = 4}, {std::int64_t{1} << 62, 1, 16}, "16777216"},
      {"train.global_batch", {.dp = 1 << 20}, {9'999'999, 10'000'000, 16}, "10485760000000"},
      {"train.global_batch", {.dp = 3}, kBatch, "30, 33"},
      {"train.global_batch", {.pp = 3, .interleave = 2, .schedule = ScheduleKind::kInterleaved}, kBatch, "30, 33"},
  };
  for (const Refused& r : all) {
    const Status status = check_layout(llama(), r.layout, r.batch);
    ASSERT_FALSE(status.ok()) << r.option << " " << describe(r.layout);
    EXPECT_EQ(status.failure().option, r.option) << status.failure().sentence();
    EXPECT_FALSE(status.failure().rule.empty());
    EXPECT_NE(status.failure().nearest.find(r.nearest), std::string::npos) << status.failure().sentence();
    EXPECT_EQ(status.failure().code, ExitCode::kUsage);
  }
  EXPECT_TRUE(check_layout(llama(), {.tp = 8, .pp = 2, .dp = 4}, kBatch).ok());
  const Status uneven = check_layout(llama(), {.pp = 2, .chunk_layers = {7, 4}}, kBatch);
  EXPECT_EQ(uneven.failure().value, "[7, 4]");
}

TEST(Layout, CoordinatesAndRanksAreInverse) {
  for (const RandomLayout& r : random_layouts(60, 1)) {
    std::set<int> seen;
    for (int rank = 0; rank < r.layout.world(); ++rank) {
      const Coordinates c = coordinates_of(r.layout, rank);
      EXPECT_EQ(rank_of(r.layout, c), rank);
      EXPECT_EQ(c.tp, rank % r.layout.tp);  // tensor parallelism varies fastest in every order
      seen.insert(c.tp + 100 * c.pp + 10000 * c.dp);
    }
    EXPECT_EQ(static_cast<int>(seen.size()), r.layout.world());
  }
}

TEST(Layout, OrdersAreTheKnownOnes) {
  // 2 x 2 x 2: in tp-pp-dp, rank 2 is the second stage; in tp-dp-pp it is the second replica.
  EXPECT_EQ(coordinates_of({.tp = 2, .pp = 2, .dp = 2}, 2), (Coordinates{0, 1, 0}));
  EXPECT_EQ(coordinates_of({.tp = 2, .pp = 2, .dp = 2, .order = AxisOrder::kTpDpPp}, 2), (Coordinates{0, 0, 1}));
}

TEST(Layout, GroupsPartitionTheRanks) {
  for (const RandomLayout& r : random_layouts(60, 2)) {
    for (Axis axis : {Axis::kTensor, Axis::kPipeline, Axis::kData}) {
      std::multiset<int> all;
      for (const std::vector<int>& group : process_groups(r.layout, axis)) {
        for (int rank : group) {
          all.insert(rank);
          EXPECT_EQ(process_group_of(r.layout, axis, rank), group);
        }
      }
      EXPECT_EQ(static_cast<int>(all.size()), r.layout.world());
      EXPECT_EQ(static_cast<int>(std::set<int>(all.begin(), all.end()).size()), r.layout.world());
    }
  }
}

TEST(Layout, KvReplicasShareAHead) {
  const Layout layout{.tp = 8};
  EXPECT_EQ(kv_replica_group_of(llama(), layout, 1), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(kv_replica_group_of(llama(), layout, 6), (std::vector<int>{4, 5, 6, 7}));
  EXPECT_EQ(kv_replica_group_of(llama(), {.tp = 2}, 1), (std::vector<int>{1}));
}

TEST(Layout, AnAlgorithmForSumsNeedsSumsThatItForms) {
  using enum ReduceAlgorithm;
  const auto refusal = [](const Layout& layout) {
    const Batch batch{.global_batch = 2 * layout.dp, .micro_batch = 1, .sequence = 16};
    const Status status = check_layout(llama(), layout, batch);
    return status.ok() ? "" : status.failure().sentence();
  };
  for (const ReduceAlgorithm algorithm : {kOrdered, kRing, kRecursiveDoubling, kHierarchical, kLibrary}) {
    EXPECT_EQ(refusal({.dp = 2, .all_reduce = algorithm}), "");
  }
  EXPECT_EQ(
      refusal({.tp = 2, .all_reduce = kRing}),
      "layout.all_reduce = ring: sums gradients over the data axis, and layout.dp is 1; nearest legal: ordered, or "
      "layout.dp of at least 2");
  for (const int zero : {1, 2, 3}) {
    EXPECT_EQ(refusal({.dp = 2, .zero = zero, .all_reduce = kRing}), "");
    EXPECT_EQ(refusal({.dp = 2, .zero = zero, .all_reduce = kRecursiveDoubling}),
              fmt::format("layout.all_reduce = recursive-doubling: ZeRO stage {} sums by reduce-scatter, which is "
                          "ordered or a ring; nearest legal: ordered, ring",
                          zero));
  }
  EXPECT_EQ(refusal({.dp = 2, .reduce = ReduceWhen::kMicrobatch, .all_reduce = kRing}), "");
  EXPECT_NE(refusal({.dp = 2, .reduce = ReduceWhen::kMicrobatch, .all_reduce = kHierarchical})
                .find("layout.all_reduce = hierarchical: layout.reduce = microbatch"),
            std::string::npos);
  EXPECT_EQ(describe({.dp = 2, .all_reduce = kRing}), "dp 2 x tp 1 x pp 1, zero 0, all-reduce ring");
}

TEST(Chunks, CoverTheModelInOrder) {
  for (const RandomLayout& r : random_layouts(100, 3)) {
    const std::vector<Chunk> chunks = model_chunks(r.config, r.layout);
    ASSERT_EQ(static_cast<int>(chunks.size()), r.layout.chunks());
    int unit = 0;
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      EXPECT_EQ(chunks[i].first_unit, unit);
      EXPECT_LT(chunks[i].first_unit, chunks[i].end_unit);
      EXPECT_EQ(chunks[i].chunk * r.layout.pp + chunks[i].stage, static_cast<int>(i));
      unit = chunks[i].end_unit;
    }
    EXPECT_EQ(unit, model::unit_count(r.config));
  }
}

TEST(Chunks, TheHeadCountsInTheBalance) {
  // A head that weighs about two layers: the last stage gets fewer of them.
  model::Config c = llama();
  c.vocabulary = 400;
  const std::vector<int> layers = balanced_chunks(c, 4, 16);
  EXPECT_EQ(std::accumulate(layers.begin(), layers.end(), 0), 10);
  EXPECT_LT(layers[3], layers[1]);
  for (int n : layers) EXPECT_GE(n, 1);
  EXPECT_EQ(balanced_chunks(c, 10, 16), std::vector<int>(10, 1));
  EXPECT_EQ(balanced_chunks(c, 1, 16), std::vector<int>{10});
}

TEST(Batch, TheEquationHolds) {
  EXPECT_EQ(micro_batches({.dp = 4}, {.global_batch = 32, .micro_batch = 2, .sequence = 16}), 4);
  EXPECT_EQ(tokens_per_step({.global_batch = 32, .micro_batch = 2, .sequence = 16}), 512);
}

TEST(Words, ParseAndPrint) {
  for (const char* word : {"gpipe", "1f1b", "interleaved", "zb-h1"}) {
    EXPECT_EQ(schedule_name(parse_schedule(word).value()), word);
  }
  EXPECT_FALSE(parse_schedule("1F1B").ok());
  EXPECT_NE(parse_schedule("x").failure().sentence().find("zb-h1"), std::string::npos);
  EXPECT_EQ(axis_order_name(parse_axis_order("tp-dp-pp").value()), "tp-dp-pp");
  EXPECT_EQ(reduce_name(parse_reduce("microbatch").value()), "microbatch");
}

}  // namespace
}  // namespace trireme::plan
