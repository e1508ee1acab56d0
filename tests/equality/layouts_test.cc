// Law 2 over ranks: layouts of several ranks against one rank. Pipelines keep every bit; sums over data or tensor ranks
// round in another order, so there each tensor's gradient lies within the bound. Law 1 beside it: every rank's ledger
// and the bytes that it sent are what the plan said.

#include <gtest/gtest.h>

#include "support/world_checks.h"

namespace trireme::testing {
namespace {

// 4 layers, 8 heads, 2 key/value heads, odd vocabulary.
model::Config layout_llama() {
  model::Config c = tiny_llama(false);
  c.layers = 4;
  c.heads = 8;
  c.kv_heads = 2;
  c.head_dim = 4;
  c.hidden = 32;
  c.ffn = 64;
  c.vocabulary = 53;
  return c;
}
model::Config layout_llama_tied() {
  model::Config c = layout_llama();
  c.tied_embeddings = true;
  return c;
}
model::Config layout_gpt2() {
  model::Config c = tiny_gpt2(0.0);
  c.layers = 4;
  c.heads = c.kv_heads = 8;
  c.head_dim = 4;
  c.hidden = 32;
  c.ffn = 64;
  c.vocabulary = 53;
  return c;
}

TinyRun run_of(const model::Config& config, int tp, int pp, int dp) {
  TinyRun run{.config = config, .batch = {.global_batch = 8, .micro_batch = 1, .sequence = 16}};
  run.layout.tp = tp;
  run.layout.pp = pp;
  run.layout.dp = dp;
  return run;
}

struct Degrees {
  int tp, pp, dp;
};

void expect_pipelines_keep_every_bit(DType compute) {
  for (const model::Config& config : {layout_llama(), layout_llama_tied(), layout_gpt2()}) {
    const auto run_with = [&](int tp, int pp, int dp) {
      TinyRun run = run_of(config, tp, pp, dp);
      run.compute = compute;
      return run;
    };
    const WorldCurve one = train_world(run_with(1, 1, 1), 3);
    for (int pp : {2, 4}) {
      for (auto schedule :
           {plan::ScheduleKind::kGpipe, plan::ScheduleKind::kOneFOneB, plan::ScheduleKind::kZeroBubbleH1}) {
        TinyRun run = run_with(1, pp, 1);
        run.layout.schedule = schedule;
        const WorldCurve curve = train_world(run, 3);
        const std::string what = plan::describe(run.layout);
        EXPECT_EQ(curve.lines, one.lines) << what;
        EXPECT_TRUE(same_weights(curve, one)) << what;
        expect_as_planned(curve, what);
      }
    }
    TinyRun interleaved = run_with(1, 2, 1);
    interleaved.layout.schedule = plan::ScheduleKind::kInterleaved;
    interleaved.layout.interleave = 2;
    const WorldCurve curve = train_world(interleaved, 3);
    EXPECT_EQ(curve.lines, one.lines) << "interleaved";
    EXPECT_TRUE(same_weights(curve, one)) << "interleaved";
    expect_as_planned(curve, "interleaved");
  }
}

TEST(Layouts, PipelinesKeepEveryBit) { expect_pipelines_keep_every_bit(DType::kF32); }
TEST(Layouts, PipelinesKeepEveryBitInBf16) { expect_pipelines_keep_every_bit(DType::kBF16); }

TEST(Layouts, DataAndTensorRanksStayWithinTheBound) {
  for (const model::Config& config : {layout_llama(), layout_gpt2()}) {
    const WorldCurve one = train_world(run_of(config, 1, 1, 1), 1);
    for (const Degrees& d : {Degrees{2, 1, 1}, {4, 1, 1}, {1, 1, 2}, {1, 1, 4}, {2, 1, 2}, {2, 2, 2}, {8, 1, 1}}) {
      const TinyRun run = run_of(config, d.tp, d.pp, d.dp);
      const WorldCurve curve = train_world(run, 1);
      const std::string what = plan::describe(run.layout);
      EXPECT_LT(worst_difference(one, curve), 2e-6) << what;
      expect_as_planned(curve, what);
    }
  }
}

void expect_sequence_parallel(const TinyRun& run, const WorldCurve& one) {
  const WorldCurve curve = train_world(run, 1);
  const std::string what =
      fmt::format("{}, sequence parallel, recompute {}, micro-batch {}", plan::describe(run.layout),
                  model::recompute_name(run.layout.recompute), run.batch.micro_batch);
  EXPECT_LT(worst_difference(one, curve), 2e-6) << what;
  expect_as_planned(curve, what);
}

TEST(Layouts, SequenceParallelRanksStayWithinTheBound) {
  model::Config dropped = layout_gpt2();
  dropped.embedding_dropout = dropped.attention_dropout = dropped.residual_dropout = 0.1;
  for (const model::Config& config : {layout_llama(), layout_llama_tied(), dropped}) {
    const WorldCurve one = train_world(run_of(config, 1, 1, 1), 1);
    for (const Degrees& d : {Degrees{2, 1, 1}, {4, 1, 1}, {8, 1, 1}, {2, 1, 2}, {2, 2, 1}, {4, 2, 2}}) {
      for (auto recompute : {model::Recompute::kNone, model::Recompute::kSelective, model::Recompute::kFull}) {
        TinyRun run = run_of(config, d.tp, d.pp, d.dp);
        run.layout.sequence_parallel = true;
        run.layout.recompute = recompute;
        expect_sequence_parallel(run, one);
      }
    }
    TinyRun split = run_of(config, 2, 2, 1);
    split.layout.sequence_parallel = true;
    split.layout.schedule = plan::ScheduleKind::kZeroBubbleH1;
    expect_sequence_parallel(split, one);
  }
}

// Several sequences a micro-batch: a rank's rows are a sequence and a half, or half a sequence.
TEST(Layouts, SequenceParallelRanksHoldPartsOfSequences) {
  model::Config dropped = layout_gpt2();
  dropped.embedding_dropout = dropped.attention_dropout = dropped.residual_dropout = 0.1;
  for (const model::Config& config : {layout_llama(), dropped}) {
    for (const auto& [tp, micro_batch] : {std::pair{2, 3}, {4, 2}}) {
      TinyRun run = run_of(config, 1, 1, 1);
      run.batch = {.global_batch = 6, .micro_batch = micro_batch, .sequence = 16};
      const WorldCurve one = train_world(run, 1);
      run.layout.tp = tp;
      run.layout.sequence_parallel = true;
      expect_sequence_parallel(run, one);
    }
  }
}

}  // namespace
}  // namespace trireme::testing
