#include "engine/optim/loss_scale.h"

#include <gtest/gtest.h>

namespace trireme::optim {
namespace {

TEST(LossScale, HalvesWhereAGradientOverflowsAndDoublesAfterManySteps) {
  const LossScalePolicy policy{.initial = 8, .growth_steps = 3};
  LossScale scale{.scale = policy.initial};
  const auto step = [&](bool overflowed) { return (scale = next_loss_scale(policy, scale, overflowed)).scale; };
  EXPECT_EQ(step(true), 4);
  EXPECT_EQ(step(false), 4);
  EXPECT_EQ(step(false), 4);
  EXPECT_EQ(step(false), 8);
  EXPECT_EQ(step(false), 8);
  EXPECT_EQ(step(true), 4);  // and the count begins anew
  EXPECT_EQ(step(false), 4);
  EXPECT_EQ(step(false), 4);
  EXPECT_EQ(step(false), 8);
}

TEST(LossScale, StaysInItsRange) {
  EXPECT_EQ(next_loss_scale({}, {.scale = 1}, true), (LossScale{.scale = 1}));
  EXPECT_EQ(next_loss_scale({.growth_steps = 1}, {.scale = kMostLossScale}, false).scale, kMostLossScale);
}

TEST(LossScale, IsAPowerOfTwo) {
  for (const double good : {1.0, 2.0, 65536.0, kMostLossScale}) EXPECT_TRUE(check({.initial = good}).ok()) << good;
  for (const double bad : {0.5, 3.0, 1000.0, 0x1p25, -4.0}) {
    const Status status = check({.initial = bad});
    ASSERT_FALSE(status.ok()) << bad;
    EXPECT_EQ(status.failure().option, "optimizer.loss_scale");
  }
  EXPECT_EQ(check({.initial = 1000}).failure().nearest, "1024");
}

}  // namespace
}  // namespace trireme::optim
