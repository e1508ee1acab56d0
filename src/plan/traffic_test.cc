#include "plan/traffic.h"

#include <gtest/gtest.h>

#include "model/test_configs.h"
#include "plan/test_random_layouts.h"

namespace trireme::plan {
namespace {

Bytes collective_bytes(Collective collective, std::int64_t count, std::int64_t element_bytes, int index, int size) {
  return Bytes{sent_elements(ReduceAlgorithm::kOrdered, collective, count, index, size) * element_bytes};
}

TEST(CollectiveBytes, SumToTheRingsBytes) {
  for (int n = 1; n <= 9; ++n) {
    for (std::int64_t count : {0, 1, 5, 64, 1000, 1001}) {
      Bytes scatter, gather, both;
      for (int i = 0; i < n; ++i) {
        scatter += collective_bytes(Collective::kReduceScatter, count, 4, i, n);
        gather += collective_bytes(Collective::kAllGather, count, 4, i, n);
        both += collective_bytes(Collective::kAllReduce, count, 4, i, n);
      }
      EXPECT_EQ(scatter.count, 4 * count * (n - 1));
      EXPECT_EQ(gather.count, 4 * count * (n - 1));
      EXPECT_EQ(both.count, 8 * count * (n - 1));
    }
  }
  // 14 GB over 8 ranks, each all-reduce: 24.5 GB a rank.
  EXPECT_EQ(collective_bytes(Collective::kAllReduce, 7'000'000'000, 2, 3, 8).count, 24'500'000'000);
}

// Four layers, hidden 16.
model::Config small() {
  model::Config c = model::small_llama();
  c.layers = 4;
  c.kv_heads = 4;
  return c;
}

Traffic at(const TrafficTable& table, Axis axis, Collective collective) {
  const auto found = table.find({axis, collective});
  return found == table.end() ? Traffic{} : found->second;
}

TEST(Traffic, OneRankSendsNothing) {
  const model::ParameterTable table = model::make_parameter_table(small());
  EXPECT_TRUE(predict_traffic(table, {}, {4, 1, 16}, {}, 0).empty());
}

TEST(Traffic, TensorParallelByHand) {
  const model::ParameterTable table = model::make_parameter_table(small());
  const Batch batch{.global_batch = 2, .micro_batch = 1, .sequence = 16};
  const TrafficTable traffic = predict_traffic(table, {.tp = 2}, batch, {}, 0);
  // A micro-batch: embedding 1, layers 2 + 2 each, head 1 all-reduce of [16, 16]; one logit block: 16 maxima and 32
  // sums. A step: the norm's 69 words.
  const std::int64_t hidden = 16 * 16 * 4, each = 1 + 4 * 4 + 1;
  const Traffic reduce = at(traffic, Axis::kTensor, Collective::kAllReduce);
  EXPECT_EQ(reduce.calls, 2 * (each + 2) + 1);
  const std::int64_t words = collective_bytes(Collective::kAllReduce, 69, 8, 0, 2).count;
  EXPECT_EQ(reduce.sent.count, 2 * (each * hidden + 16 * 4 + 32 * 4) + words);
}

TEST(Traffic, PipelineByHand) {
  const model::ParameterTable table = model::make_parameter_table(small());
  const Batch batch{.global_batch = 3, .micro_batch = 1, .sequence = 16};
  for (int rank = 0; rank < 4; ++rank) {
    const TrafficTable traffic = predict_traffic(table, {.pp = 4}, batch, {}, rank);
    const int neighbours = rank == 0 || rank == 3 ? 1 : 2;
    const Traffic sends = at(traffic, Axis::kPipeline, Collective::kSend);
    EXPECT_EQ(sends.calls, 3 * neighbours);
    EXPECT_EQ(sends.sent.count, 3 * neighbours * 16 * 16 * 4);
  }
}

// ZeRO 1 and 2 send what ZeRO 0 sends; ZeRO 3 sends half as much again where there is one micro-batch (Rajbhandari et
// al. 2020, section 7).
TEST(Traffic, DataParallelVolumeByZeroStage) {
  const model::ParameterTable table = model::make_parameter_table(small());
  const Batch batch{.global_batch = 4, .micro_batch = 1, .sequence = 16};
  const auto volume = [&](int zero) {
    std::int64_t bytes = 0;
    for (int rank = 0; rank < 4; ++rank) {
      const TrafficTable traffic =
          predict_traffic(table, {.dp = 4, .zero = zero, .reduce = default_reduce(zero)}, batch, {}, rank);
      for (const auto& [key, t] : traffic) {
        if (key.second != Collective::kAllReduce || zero == 0) bytes += t.sent.count;
      }
      if (zero == 0) {
        const std::int64_t loss = collective_bytes(Collective::kAllReduce, 69, 8, rank, 4).count;
        bytes -= loss;
      }
    }
    return bytes;
  };
  std::int64_t flat = 0;
  for (const ShardUnit& unit : shard_units(table, {.dp = 4}, 0)) flat += unit.elements;
  EXPECT_EQ(volume(0), 2 * 3 * flat * 4);
  EXPECT_EQ(volume(1), volume(0));
  EXPECT_EQ(volume(2), volume(0));
  // Forward and backward gathers, less the embedding, which backward does not read.
  const std::int64_t embedding = shard_units(table, {.dp = 4}, 0).front().elements;
  EXPECT_EQ(volume(3), 3 * (3 * flat - embedding) * 4);
}

TEST(Traffic, SequenceParallelByHand) {
  const model::ParameterTable table = model::make_parameter_table(small());
  const Batch batch{.global_batch = 1, .micro_batch = 1, .sequence = 16};
  Layout layout{.tp = 2, .sequence_parallel = true};
  const std::int64_t half = 16 * 16 * 4 / 2;
  const auto gathers = [&] {
    return at(predict_traffic(table, layout, batch, {}, 0), Axis::kTensor, Collective::kAllGather);
  };
  const auto scatters = [&] {
    return at(predict_traffic(table, layout, batch, {}, 0), Axis::kTensor, Collective::kReduceScatter);
  };
  // Gathers: embedding's backward, 2 + 2 + 4 a layer, head. Scatters: embedding's forward, 2 + 2 a layer, head.
  EXPECT_EQ(gathers().calls, 1 + 4 * 8 + 1);
  EXPECT_EQ(gathers().sent.count, 34 * half);
  EXPECT_EQ(scatters().calls, 1 + 4 * 4 + 1);
  EXPECT_EQ(scatters().sent.count, 18 * half);
  // Two calls for the block of logits, the norm's words, and the weights of nine norms.
  const Traffic reduce = at(predict_traffic(table, layout, batch, {}, 0), Axis::kTensor, Collective::kAllReduce);
  EXPECT_EQ(reduce.calls, 2 + 1 + 9);
  EXPECT_EQ(reduce.sent.count, (16 + 32 + 9 * 16) * 4 + 69 * 8);

  layout.recompute = model::Recompute::kSelective;
  EXPECT_EQ(gathers().calls, 34);
  layout.recompute = model::Recompute::kFull;
  EXPECT_EQ(gathers().calls, 34 + 4 * 2);
  EXPECT_EQ(scatters().calls, 18 + 4);
}

// One number over the data axis a step, where targets are masked.
TEST(Traffic, ReplicasCountTheTokensThatBearALoss) {
  const model::ParameterTable table = model::make_parameter_table(small());
  const Batch batch{.global_batch = 6, .micro_batch = 1, .sequence = 16};
  for (int dp : {1, 3}) {
    const auto reduce = [&](bool masked) {
      return at(predict_traffic(table, {.dp = dp}, batch, {.masked_targets = masked}, 0), Axis::kData,
                Collective::kAllReduce);
    };
    EXPECT_EQ(reduce(true).calls, reduce(false).calls + (dp > 1 ? 1 : 0));
    const std::int64_t bytes = dp > 1 ? collective_bytes(Collective::kAllReduce, 1, 8, 0, dp).count : 0;
    EXPECT_EQ(reduce(true).sent.count, reduce(false).sent.count + bytes);
  }
}

// Two kv heads over four ranks: key and value weights [4, 16] of each layer are summed over pairs.
TEST(Traffic, SharedKvHeadsAreSummedOverTheRanksThatShareThem) {
  model::Config c = small();
  c.kv_heads = 2;
  const model::ParameterTable table = model::make_parameter_table(c);
  const Batch batch{.global_batch = 1, .micro_batch = 1, .sequence = 16};
  const Traffic reduce = at(predict_traffic(table, {.tp = 4}, batch, {}, 0), Axis::kTensor, Collective::kAllReduce);
  EXPECT_EQ(reduce.calls, 18 + 2 + 1 + 8);
  const std::int64_t hidden = 2 * (256 - 64) * 4, blocks = 2 * (48 - 12) * 4, words = 2 * (69 - 17) * 8;
  EXPECT_EQ(reduce.sent.count, 18 * hidden + blocks + words + 8 * 64 * 4);
}

TEST(Traffic, ReducingEachMicroBatchCostsAsManyTimes) {
  const model::ParameterTable table = model::make_parameter_table(small());
  const Batch batch{.global_batch = 6, .micro_batch = 1, .sequence = 16};
  const auto calls = [&](int zero, ReduceWhen reduce, Collective collective) {
    return at(predict_traffic(table, {.dp = 2, .zero = zero, .reduce = reduce}, batch, {}, 0), Axis::kData, collective)
        .calls;
  };
  // Six units; the words of the loss, and of the norm where it is sharded.
  EXPECT_EQ(calls(0, ReduceWhen::kStep, Collective::kAllReduce), 6 + 1);
  EXPECT_EQ(calls(0, ReduceWhen::kMicrobatch, Collective::kAllReduce), 3 * 6 + 1);
  for (int zero : {1, 2, 3}) {
    EXPECT_EQ(calls(zero, ReduceWhen::kStep, Collective::kReduceScatter), 6);
    EXPECT_EQ(calls(zero, ReduceWhen::kMicrobatch, Collective::kReduceScatter), 3 * 6);
    EXPECT_EQ(calls(zero, ReduceWhen::kStep, Collective::kAllReduce), 2);
    EXPECT_EQ(calls(zero, ReduceWhen::kStep, Collective::kAllGather), zero == 3 ? 3 * (6 + 5) : 6);
  }
}

// 53 x 16 weights, whose shards on two ranks are 512 and 336 elements.
TEST(Traffic, TiedEmbeddingsOverStagesByHand) {
  model::Config c = small();
  c.tied_embeddings = true;
  const model::ParameterTable table = model::make_parameter_table(c);
  const Batch batch{.global_batch = 2, .micro_batch = 1, .sequence = 1};
  const auto tied_bytes = [&](int zero, int rank) {
    const Layout layout{.pp = 2, .dp = 2, .zero = zero, .reduce = default_reduce(zero)};
    const Traffic sends = at(predict_traffic(table, layout, batch, {}, rank), Axis::kPipeline, Collective::kSend);
    EXPECT_EQ(sends.calls, 2);
    return sends.sent.count - 16 * 4;  // one token's activation, or its gradient
  };
  const std::int64_t whole = 53 * 16 * 4;
  for (int dp : {0, 1}) {
    const int first = 2 * dp, last = 2 * dp + 1;
    const std::int64_t shard = (dp == 0 ? 512 : 336) * 4;
    EXPECT_EQ(tied_bytes(0, last), whole);
    EXPECT_EQ(tied_bytes(0, first), whole);
    for (int zero : {1, 2, 3}) {
      EXPECT_EQ(tied_bytes(zero, last), shard);
      EXPECT_EQ(tied_bytes(zero, first), zero == 3 ? shard : whole);
    }
  }
}

TEST(Traffic, EveryRankOfRandomLayoutsHasAPrediction) {
  for (const RandomLayout& r : random_layouts(60, 11)) {
    const model::ParameterTable table = model::make_parameter_table(r.config);
    for (int rank = 0; rank < r.layout.world(); rank += 3) {
      for (const auto& [key, traffic] : predict_traffic(table, r.layout, r.batch, {}, rank)) {
        EXPECT_GT(traffic.calls, 0);
        EXPECT_GE(traffic.sent.count, 0);
      }
    }
  }
}

}  // namespace
}  // namespace trireme::plan
