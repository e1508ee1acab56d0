// Law 1, predicted, then counted: the arena's ledger against plan/'s prediction, to the byte, for each class and for
// the peak of the sum.

#include <gtest/gtest.h>

#include "plan/workspace.h"
#include "support/tiny_run.h"

namespace trireme::testing {
namespace {

using model::Recompute;

struct Case {
  model::Config config;
  plan::Layout layout;
  plan::Batch batch;
  int threads = 1;
  DType compute = DType::kF32;
  bool fp32_gradients = false;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const model::Config& config : {tiny_gpt2(0.0), tiny_gpt2(0.1), tiny_llama(false), tiny_llama(true)}) {
    for (Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
      for (auto schedule :
           {plan::ScheduleKind::kGpipe, plan::ScheduleKind::kOneFOneB, plan::ScheduleKind::kZeroBubbleH1}) {
        for (plan::Batch batch : {plan::Batch{6, 2, 17}, plan::Batch{1, 1, 1}, plan::Batch{3, 3, 32}}) {
          Case c{.config = config, .layout = {}, .batch = batch, .threads = batch.micro_batch == 3 ? 2 : 1};
          c.layout.recompute = recompute;
          c.layout.schedule = schedule;
          all.push_back(c);
          if (schedule != plan::ScheduleKind::kOneFOneB) continue;
          c.compute = DType::kBF16;
          c.fp32_gradients = recompute == Recompute::kFull;
          all.push_back(c);
        }
      }
    }
  }
  return all;
}

TEST(LedgerAgreement, PredictedIsCounted) {
  for (const Case& c : cases()) {
    TinyRank rank({.config = c.config,
                   .layout = c.layout,
                   .batch = c.batch,
                   .threads = c.threads,
                   .compute = c.compute,
                   .fp32_gradients = c.fp32_gradients});
    rank.step();
    rank.evaluation_loss();
    rank.step();
    const Ledger& predicted = rank.rank().predicted();
    const Ledger& counted = rank.rank().counted();
    EXPECT_EQ(Ledger::first_difference(predicted, counted), "") << plan::describe(c.layout);
    EXPECT_GT(counted.peak_sum().count, 0);
  }
}

TEST(LedgerAgreement, RecomputeSavesWhatThePlanSays) {
  const auto peak = [](Recompute recompute) {
    TinyRun run{.config = tiny_llama(false)};
    run.config.layers = 6;
    run.layout.recompute = recompute;
    TinyRank rank(run);
    rank.step();
    return rank.rank().counted().peak(MemoryClass::kSavedActivations).count;
  };
  EXPECT_LT(peak(Recompute::kSelective), peak(Recompute::kNone));
  EXPECT_LT(peak(Recompute::kFull), peak(Recompute::kSelective));
}

// The workspace's size is a formula: each pass must use exactly what it says, and no pass more.
TEST(LedgerAgreement, EveryPassUsesTheWorkspaceThatThePlanSays) {
  for (const model::Config& config : {tiny_gpt2(0.1), tiny_llama(false)}) {
    for (int threads : {1, 2}) {
      TinyRun run{.config = config, .threads = threads, .compute = threads == 2 ? DType::kBF16 : DType::kF32};
      run.layout.recompute = Recompute::kFull;
      TinyRank rank(run);
      parallel::Executor& executor = rank.rank().executor();
      const parallel::RunPlan& plan = rank.rank().plan();
      int passes = 0;
      executor.state().workspace().reset_high_water();
      executor.observer = [&](const plan::Instruction& instruction) {
        const Bytes used = executor.state().workspace().high_water();
        executor.state().workspace().reset_high_water();
        const std::optional<model::FlowPass> pass = plan::pass_of(instruction.op);
        if (instruction.op == plan::Op::kGradientNorm) {
          EXPECT_EQ(used.count, plan::norm_scratch_bytes().count);
        }
        if (!pass) return;
        ++passes;
        EXPECT_EQ(used.count, plan.unit(instruction.unit)[*pass].workspace.count)
            << plan::describe(instruction);
      };
      rank.step();
      EXPECT_GT(passes, 0);
    }
  }
}

TEST(LedgerAgreement, TheArenaRefusesWhatThePlanDidNotPredict) {
  FakeEnv env;
  MemoryLog log;
  std::unique_ptr<kernels::Device> device = kernels::make_reference_device();
  Ledger booked;
  booked.book(MemoryClass::kWeights, Bytes{128});
  kernels::Arena arena(*device, {.booked = booked, .limit = {}});
  const kernels::Buffer weights = arena.allocate(MemoryClass::kWeights, "weights", Bytes{128});
  EXPECT_THROW(arena.allocate(MemoryClass::kWeights, "more", Bytes{1}), InternalError);
  EXPECT_THROW(arena.allocate(MemoryClass::kMoments, "moments", Bytes{1}), InternalError);
}

}  // namespace
}  // namespace trireme::testing
