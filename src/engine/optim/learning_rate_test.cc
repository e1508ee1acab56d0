#include "engine/optim/learning_rate.h"

#include <gtest/gtest.h>

namespace trireme::optim {
namespace {

TEST(LearningRate, WarmUpRisesToThePeak) {
  const LearningRateSchedule s{.peak = 1.0, .warmup_steps = 4, .total_steps = 10};
  EXPECT_DOUBLE_EQ(learning_rate_at(s, 0), 0.25);
  EXPECT_DOUBLE_EQ(learning_rate_at(s, 3), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate_at(s, 4), 1.0);
}

TEST(LearningRate, EverySchedulesLastStepIsTheMinimum) {
  for (Decay decay : {Decay::kCosine, Decay::kLinear, Decay::kWsd}) {
    const LearningRateSchedule s{
        .peak = 1.0, .minimum = 0.1, .warmup_steps = 2, .total_steps = 20, .decay_steps = 5, .decay = decay};
    EXPECT_NEAR(learning_rate_at(s, 19), 0.1, 1e-15) << decay_name(decay);
    for (std::int64_t step = 3; step < 20; ++step) {
      EXPECT_LE(learning_rate_at(s, step), learning_rate_at(s, step - 1)) << decay_name(decay) << " " << step;
    }
  }
}

TEST(LearningRate, CosineIsHalfwayInTheMiddle) {
  const LearningRateSchedule s{.peak = 1.0, .minimum = 0.0, .total_steps = 11, .decay = Decay::kCosine};
  EXPECT_NEAR(learning_rate_at(s, 5), 0.5, 1e-15);
}

TEST(LearningRate, WsdIsStableUntilItsDecay) {
  const LearningRateSchedule s{.peak = 1.0, .total_steps = 100, .decay_steps = 10, .decay = Decay::kWsd};
  EXPECT_DOUBLE_EQ(learning_rate_at(s, 89), 1.0);
  EXPECT_NEAR(learning_rate_at(s, 94), 0.5, 1e-15);
  const LearningRateSchedule one{.peak = 1.0, .total_steps = 1, .decay = Decay::kLinear};
  EXPECT_DOUBLE_EQ(learning_rate_at(one, 0), 1.0);
}

TEST(LearningRate, UnknownScheduleIsRefusedByName) {
  const Result<Decay> decay = parse_decay("cosin");
  ASSERT_FALSE(decay.ok());
  EXPECT_NE(decay.failure().sentence().find("cosin"), std::string::npos);
  EXPECT_EQ(parse_decay("wsd").value(), Decay::kWsd);
}

}  // namespace
}  // namespace trireme::optim
