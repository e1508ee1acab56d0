// Law 2, one loss curve, on one rank: 50 steps give the same hex losses, norms and final weights whatever must not
// matter.

#include <gtest/gtest.h>

#include "support/tiny_run.h"

namespace trireme::testing {
namespace {

constexpr int kSteps = 50;

struct Case {
  const char* name;
  model::Config config;
  DType compute = DType::kF32;
  friend void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }
};

class OneLossCurve : public ::testing::TestWithParam<Case> {
 protected:
  TinyRun base() const { return {.config = GetParam().config, .compute = GetParam().compute}; }
  Curve expected() const { return train_curve(base(), kSteps); }
};

TEST_P(OneLossCurve, TwiceTheSame) {
  const Curve once = expected();
  EXPECT_EQ(train_curve(base(), kSteps), once);
  EXPECT_NE(once.lines.front(), once.lines.back());
}

TEST_P(OneLossCurve, RecomputeDoesNotMatter) {
  const Curve none = expected();
  for (auto recompute : {model::Recompute::kSelective, model::Recompute::kFull}) {
    TinyRun run = base();
    run.layout.recompute = recompute;
    EXPECT_EQ(train_curve(run, kSteps), none) << model::recompute_name(recompute);
  }
}

TEST_P(OneLossCurve, ThreadsDoNotMatter) {
  TinyRun run = base();
  run.threads = 2;
  EXPECT_EQ(train_curve(run, kSteps), expected());
}

TEST_P(OneLossCurve, ScheduleDoesNotMatter) {
  const Curve one_f_one_b = expected();
  for (auto schedule : {plan::ScheduleKind::kGpipe, plan::ScheduleKind::kZeroBubbleH1}) {
    for (auto recompute : {model::Recompute::kNone, model::Recompute::kFull}) {
      TinyRun run = base();
      run.layout.schedule = schedule;
      run.layout.recompute = recompute;
      EXPECT_EQ(train_curve(run, kSteps), one_f_one_b) << plan::schedule_name(schedule);
    }
  }
}

TEST_P(OneLossCurve, ZeroStageOfOneRankDoesNotMatter) {
  const Curve plain = expected();
  for (int zero = 1; zero <= 3; ++zero) {
    TinyRun run = base();
    run.layout.zero = zero;
    EXPECT_EQ(train_curve(run, kSteps), plain) << "zero " << zero;
  }
}

TEST_P(OneLossCurve, TheSeedDoesMatter) {
  TinyRun run = base();
  run.seed += 1;
  EXPECT_NE(train_curve(run, 2).lines, train_curve(base(), 2).lines);
}

TEST_P(OneLossCurve, ItLearns) {
  TinyRank rank(base());
  const double before = rank.evaluation_loss();
  for (int i = 0; i < kSteps; ++i) rank.step();
  EXPECT_LT(rank.evaluation_loss(), 0.8 * before);
}

TEST_P(OneLossCurve, EvaluationChangesNothing) {
  TinyRank plain(base()), watched(base());
  for (int i = 0; i < 5; ++i) {
    watched.evaluation_loss();
    EXPECT_EQ(plain.step().loss, watched.step().loss);
  }
  EXPECT_EQ(plain.weights(), watched.weights());
}

INSTANTIATE_TEST_SUITE_P(Families, OneLossCurve,
                         ::testing::Values(Case{"gpt2", tiny_gpt2(0.0)}, Case{"gpt2_dropout", tiny_gpt2(0.1)},
                                           Case{"llama", tiny_llama(false)}, Case{"llama_tied", tiny_llama(true)},
                                           Case{"gpt2_dropout_bf16", tiny_gpt2(0.1), DType::kBF16},
                                           Case{"llama_bf16", tiny_llama(false), DType::kBF16},
                                           Case{"llama_tied_bf16", tiny_llama(true), DType::kBF16}),
                         [](const auto& test) { return test.param.name; });

// Splitting the same samples into micro-batches differently changes the order of sums, so not the bits but the value.
TEST(Accumulation, MicroBatchesSumToTheSameGradient) {
  for (std::int64_t micro_batch : {1, 3, 6}) {
    TinyRun run{.config = tiny_llama(true)};
    TinyRun other = run;
    other.batch.micro_batch = micro_batch;
    TinyRank a(run), b(other);
    const parallel::StepResult one = a.step(), two = b.step();
    EXPECT_NEAR(one.loss, two.loss, 1e-6) << micro_batch;
    EXPECT_NEAR(one.grad_norm, two.grad_norm, 1e-5 * one.grad_norm) << micro_batch;
  }
}

}  // namespace
}  // namespace trireme::testing
