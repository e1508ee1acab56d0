#include "plan/memory.h"

#include <gtest/gtest.h>

#include "model/test_configs.h"
#include "plan/test_random_layouts.h"
#include "plan/workspace.h"

namespace trireme::plan {
namespace {

// gpt2 of 124 million parameters, untied.
model::Config gpt2_124m() {
  model::Config c = model::small_gpt2();
  c.tied_embeddings = false;
  c.layers = 12;
  c.hidden = 768;
  c.heads = c.kv_heads = 12;
  c.head_dim = 64;
  c.ffn = 3072;
  c.vocabulary = 50257;
  c.max_positions = 1024;
  return c;
}

std::int64_t state_bytes(const Ledger& ledger) {
  return ledger.peak(MemoryClass::kWeights).count + ledger.peak(MemoryClass::kGradients).count +
         ledger.peak(MemoryClass::kMoments).count;
}

// In fp32 the state is 16 bytes a parameter; sharded over N: 16P, 8P + 8P/N, 4P + 12P/N, 16P/N, up to padding and to
// the buffer of the unit that is being reduced or gathered.
TEST(Memory, StateFollowsTheZeroStages) {
  const model::ParameterTable table = model::make_parameter_table(gpt2_124m());
  const double p = static_cast<double>(table.total());
  const Batch batch{.global_batch = 4, .micro_batch = 1, .sequence = 64};
  const auto state = [&](int zero) {
    const Layout layout{.dp = 4, .zero = zero, .reduce = default_reduce(zero)};
    Ledger ledger;
    for (const StaticBuffer& buffer : static_buffers(table, layout, batch, {}, 0)) {
      ledger.book(buffer.memory_class, buffer.bytes);
    }
    return static_cast<double>(state_bytes(ledger)) / p;
  };
  EXPECT_NEAR(state(0), 16.0, 0.01);
  EXPECT_NEAR(state(1), 8.0 + 8.0 / 4, 0.01);
  EXPECT_NEAR(state(2), 4.0 + 12.0 / 4, 0.01);
  EXPECT_NEAR(state(3), 16.0 / 4, 0.01);
}

// bf16: 16 bytes a parameter (2 + 2 + 4 + 8), 18 with fp32 gradients; sharded: 16P, 4P + 12P/N, 2P + 14P/N, 16P/N.
TEST(Memory, Bf16StateFollowsTheZeroStages) {
  const model::ParameterTable table = model::make_parameter_table(gpt2_124m());
  const double p = static_cast<double>(table.total());
  const Batch batch{.global_batch = 4, .micro_batch = 1, .sequence = 64};
  const auto state = [&](int zero, bool fp32_gradients) {
    const Layout layout{.dp = 4, .zero = zero, .reduce = default_reduce(zero)};
    Ledger ledger;
    const RunInputs inputs{.compute = DType::kBF16, .fp32_gradients = fp32_gradients};
    for (const StaticBuffer& buffer : static_buffers(table, layout, batch, inputs, 0)) {
      ledger.book(buffer.memory_class, buffer.bytes);
    }
    return static_cast<double>(state_bytes(ledger) + ledger.peak(MemoryClass::kMasterWeights).count) / p;
  };
  EXPECT_NEAR(state(0, false), 16.0, 0.01);
  EXPECT_NEAR(state(1, false), 4.0 + 12.0 / 4, 0.01);
  EXPECT_NEAR(state(2, false), 2.0 + 14.0 / 4, 0.01);
  EXPECT_NEAR(state(3, false), 16.0 / 4, 0.01);
  EXPECT_NEAR(state(0, true), 18.0, 0.01);
  EXPECT_NEAR(state(2, true), 2.0 + 16.0 / 4, 0.01);
}

TEST(Memory, OneRankByHand) {
  // One layer, one token: every number can be written down.
  model::Config c = model::small_llama();
  c.layers = 1;
  c.hidden = 8;
  c.heads = 2;
  c.kv_heads = 1;
  c.ffn = 16;
  c.vocabulary = 10;
  const model::ParameterTable table = model::make_parameter_table(c);
  const Batch batch{.global_batch = 1, .micro_batch = 1, .sequence = 1};
  const Ledger ledger = predict_memory(table, {}, batch, {}, 0);
  // Flat units: embedding 1 tensor of 80; layer: norms 2 x 256, q 64, k 32, v 32, o 64, gate, up, down 128 each, all
  // padded to 256: 9 tensors; head: norm 256 and head 80 -> 256.
  const std::int64_t elements = 256 * (1 + 9 + 2);
  EXPECT_EQ(ledger.peak(MemoryClass::kWeights).count, elements * 4);
  EXPECT_EQ(ledger.peak(MemoryClass::kGradients).count, elements * 4);
  EXPECT_EQ(ledger.peak(MemoryClass::kMoments).count, elements * 8);
  EXPECT_EQ(ledger.peak(MemoryClass::kTokenBatch).count, 2 * 64);
  // Every tensor of one token is at most 16 floats, so 64 bytes: logits, terms, losses.
  EXPECT_EQ(ledger.peak(MemoryClass::kLogitsAndLoss).count, 3 * 64);
  // At the peak, in the layer's backward-input: its 14 forward entries, its 7 gradients (output gradient included), the
  // embedding's output gradient.
  EXPECT_EQ(ledger.peak(MemoryClass::kSavedActivations).count, 64 * (14 + 7 + 1));
}

TEST(Memory, EveryClassIsBackToItsStaticPartAtTheEnd) {
  for (const RandomLayout& r : random_layouts(100, 10)) {
    const model::ParameterTable table = model::make_parameter_table(r.config);
    for (int rank : {0, r.layout.world() - 1}) {
      const Ledger ledger = predict_memory(table, r.layout, r.batch, {.evaluation_micro_batches = 1}, rank);
      std::int64_t fixed = 0;
      for (const StaticBuffer& b : static_buffers(table, r.layout, r.batch, {.evaluation_micro_batches = 1}, rank)) {
        fixed += allocation_size(b.bytes).count;
      }
      EXPECT_EQ(ledger.current_sum().count, fixed);
      EXPECT_EQ(ledger.current(MemoryClass::kSavedActivations).count, 0);
      EXPECT_GE(ledger.peak_sum().count, fixed);
    }
  }
}

TEST(Memory, TensorParallelShardsSumToTheWhole) {
  const model::ParameterTable table = model::make_parameter_table(gpt2_124m());
  for (int tp : {2, 3, 4, 6, 12}) {
    std::int64_t payload = 0, replicated = 0;
    for (int rank = 0; rank < tp; ++rank) {
      for (const ShardUnit& unit : shard_units(table, {.tp = tp}, rank)) {
        for (const LocalTensor& tensor : unit.tensors) {
          (tensor.tensor_replicas == 1 ? payload : replicated) += tensor.elements();
        }
      }
    }
    EXPECT_EQ(payload + replicated / tp, table.total()) << tp;
  }
}

TEST(Memory, FirstStageOfOneFOneBHoldsAsManyMicroBatchesAsStages) {
  model::Config c = gpt2_124m();
  const model::ParameterTable table = model::make_parameter_table(c);
  const Batch batch{.global_batch = 16, .micro_batch = 1, .sequence = 64};
  const auto activations = [&](ScheduleKind kind, int rank) {
    return predict_memory(table, {.pp = 4, .schedule = kind}, batch, {}, rank)
        .peak(MemoryClass::kSavedActivations)
        .count;
  };
  EXPECT_GT(activations(ScheduleKind::kGpipe, 0), 3 * activations(ScheduleKind::kOneFOneB, 0));
  EXPECT_GT(activations(ScheduleKind::kOneFOneB, 0), 2 * activations(ScheduleKind::kOneFOneB, 3));
}

TEST(Memory, ZeroStagesAreTheSameWhereNothingIsSharded) {
  const model::ParameterTable table = model::make_parameter_table(model::small_llama());
  const Batch batch{.global_batch = 4, .micro_batch = 1, .sequence = 16};
  const Ledger plain = predict_memory(table, {.tp = 2, .pp = 2}, batch, {}, 1);
  for (int zero = 1; zero <= 3; ++zero) {
    const Layout layout{.tp = 2, .pp = 2, .zero = zero, .reduce = default_reduce(zero)};
    EXPECT_EQ(Ledger::first_difference(plain, predict_memory(table, layout, batch, {}, 1)), "") << zero;
  }
}

// One unit ahead: the unit at work and the next one are gathered.
TEST(Memory, GatheredWeightsAreThePairsOfNeighbours) {
  const model::ParameterTable table = model::make_parameter_table(model::small_llama());
  const Layout layout{.dp = 2, .zero = 3, .reduce = ReduceWhen::kMicrobatch};
  const Batch batch{.global_batch = 4, .micro_batch = 1, .sequence = 16};
  const std::vector<ShardUnit> units = shard_units(table, layout, 0);
  std::int64_t pair = 0, largest = 0, flat = 0;
  for (std::size_t i = 0; i < units.size(); ++i) {
    if (i > 0) pair = std::max(pair, units[i - 1].elements + units[i].elements);
    largest = std::max(largest, units[i].elements);
    flat += units[i].elements;
  }
  const Ledger ledger = predict_memory(table, layout, batch, {}, 0);
  EXPECT_EQ(ledger.peak(MemoryClass::kGatheredParameters).count, pair * 4);
  // Gradients: the shards, and one unit's buffer for a micro-batch.
  EXPECT_EQ(ledger.peak(MemoryClass::kGradients).count, (flat / 2 + largest) * 4);
}

// 53 x 16 weights, 1024 elements flat: the shards of two ranks hold 512 and 336 of them.
TEST(Memory, TheTiedCopysGradientIsBookedWhereItArrives) {
  model::Config c = model::small_llama();
  c.tied_embeddings = true;
  const model::ParameterTable table = model::make_parameter_table(c);
  const Batch batch{.global_batch = 2, .micro_batch = 1, .sequence = 1};
  const auto buffers = [&](int zero, int rank) {
    const Layout layout{.pp = 2, .dp = 2, .zero = zero, .reduce = default_reduce(zero)};
    return predict_memory(table, layout, batch, {}, rank).peak(MemoryClass::kCommunicationBuffers).count;
  };
  EXPECT_EQ(buffers(0, 0), 53 * 16 * 4);
  EXPECT_EQ(buffers(0, 1), 16 * 4);  // the last stage: a boundary of one token
  for (int zero : {1, 2, 3}) {
    EXPECT_EQ(buffers(zero, 0), 512 * 4);
    EXPECT_EQ(buffers(zero, 2), 336 * 4);
  }
}

TEST(Memory, TypesWithoutSizesAreRefused) {
  const model::ParameterTable table = model::make_parameter_table(model::small_llama());
  EXPECT_THROW(static_buffers(table, {}, {1, 1, 1}, {.compute = DType::kI32}, 0), InternalError);
}

TEST(Workspace, LogitRowsAreABlockOrTheMicroBatch) {
  EXPECT_EQ(logit_rows({8, 8, 512}), 256);
  EXPECT_EQ(logit_rows({1, 1, 300}), 256);
  EXPECT_EQ(logit_rows({1, 1, 5}), 5);
}

}  // namespace
}  // namespace trireme::plan
