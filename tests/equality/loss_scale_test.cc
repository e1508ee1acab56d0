// Training in fp16: gradients are those of the unscaled loss whatever the scale, and a step whose gradients overflow
// changes nothing.

#include "engine/optim/loss_scale.h"

#include <cmath>

#include <gtest/gtest.h>

#include "support/tiny_world.h"

namespace trireme::testing {
namespace {

TinyRun fp16_run(double scale) { return {.config = tiny_llama(true), .compute = DType::kF16, .loss_scale = scale}; }

TEST(LossScale, TheNormIsThatOfTheLossItself) {
  TinyRank plain(TinyRun{.config = tiny_llama(true)});
  const double expected = plain.step().grad_norm;
  for (const double scale : {16.0, 1024.0}) {
    TinyRank rank(fp16_run(scale));
    const parallel::StepResult result = rank.step();
    EXPECT_FALSE(result.left_out);
    EXPECT_EQ(result.loss_scale, scale);
    EXPECT_NEAR(result.grad_norm, expected, 0.01 * expected) << scale;
  }
}

TEST(LossScale, AStepThatOverflowsChangesNothing) {
  TinyRank rank(fp16_run(optim::kMostLossScale));
  const std::vector<float> before = rank.weights();
  const parallel::StepResult result = rank.step();
  EXPECT_TRUE(result.left_out);
  EXPECT_TRUE(std::isfinite(result.loss));
  EXPECT_FALSE(std::isfinite(result.grad_norm));
  EXPECT_EQ(rank.weights(), before);
}

TEST(LossScale, OverflowWithoutAScaleIsADivergence) {
  TinyRun run = fp16_run(1);
  run.config.embedding_dropout = 0;
  TinyRank rank(run);
  rank.rank().executor().fault = [](nn::UnitContext&, double& loss_scale) { loss_scale = 1e9; };
  EXPECT_THROW(rank.step(), Error);
}

// All ranks see one norm, so all leave the step out.
TEST(LossScale, AllRanksAgree) {
  for (const int zero : {0, 1, 2, 3}) {
    TinyRun run = fp16_run(optim::kMostLossScale);
    run.config.layers = 4;
    run.batch = {.global_batch = 8, .micro_batch = 1, .sequence = 16};
    run.layout = {.pp = 2, .dp = 2, .zero = zero, .reduce = plan::default_reduce(zero)};
    const WorldCurve overflowed = train_world(run, 1);
    EXPECT_NE(overflowed.lines.front().find("inf"), std::string::npos) << overflowed.lines.front();
  }
}

}  // namespace
}  // namespace trireme::testing
