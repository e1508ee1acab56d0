#include "planner/state_memory.h"

#include <gtest/gtest.h>

namespace trireme::planner {
namespace {

constexpr plan::RunInputs kBf16{.compute = DType::kBF16};

TEST(StateMemory, SevenBillionOnEightRanks) {
  const auto gigabytes = [](int zero) { return state_bytes(7e9, 8, zero, kBf16).sum() / 1e9; };
  EXPECT_DOUBLE_EQ(gigabytes(0), 112.0);
  EXPECT_DOUBLE_EQ(gigabytes(1), 38.5);
  EXPECT_DOUBLE_EQ(gigabytes(2), 26.25);
  EXPECT_DOUBLE_EQ(gigabytes(3), 14.0);
}

// Rajbhandari et al. 2020, figure 1: 7.5e9 parameters on 64 ranks: 120, 31.4, 16.6, 1.9 GB.
TEST(StateMemory, ThePapersFigure) {
  const auto gigabytes = [](int zero) { return state_bytes(7.5e9, 64, zero, kBf16).sum() / 1e9; };
  EXPECT_NEAR(gigabytes(0), 120.0, 0.05);
  EXPECT_NEAR(gigabytes(1), 31.4, 0.05);
  EXPECT_NEAR(gigabytes(2), 16.6, 0.05);
  EXPECT_NEAR(gigabytes(3), 1.9, 0.05);
}

TEST(StateMemory, OtherTypes) {
  const auto each = [](const plan::RunInputs& inputs) { return state_bytes(1.0, 1, 0, inputs).sum(); };
  EXPECT_EQ(each({.compute = DType::kBF16}), 16.0);
  EXPECT_EQ(each({.compute = DType::kBF16, .fp32_gradients = true}), 18.0);
  EXPECT_EQ(each({.compute = DType::kF32}), 16.0);
}

TEST(StateMemory, FewestRanks) {
  EXPECT_EQ(fewest_ranks(7e9, 80e9, 0, kBf16), std::nullopt);  // 112 GB, however many
  EXPECT_EQ(fewest_ranks(7e9, 80e9, 1, kBf16), 2);             // 28 + 84 / N
  EXPECT_EQ(fewest_ranks(7e9, 80e9, 3, kBf16), 2);
  EXPECT_EQ(fewest_ranks(7e9, 112e9, 0, kBf16), 1);
  for (int zero = 1; zero <= 3; ++zero) {
    const std::int64_t least = fewest_ranks(70e9, 300e9, zero, kBf16).value();
    EXPECT_LE(state_bytes(70e9, least, zero, kBf16).sum(), 300e9);
    EXPECT_GT(state_bytes(70e9, least - 1, zero, kBf16).sum(), 300e9);
  }
}

}  // namespace
}  // namespace trireme::planner
