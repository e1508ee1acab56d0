#include "planner/flops.h"

#include <gtest/gtest.h>

#include "planner/test_problems.h"

namespace trireme::planner {
namespace {

using model::Recompute;

struct Row {
  std::int64_t layers, hidden, heads, batch;
  double model, selective, full;
};
// 22B, 175B, 530B and 1T of Korthikanti et al. 2022.
constexpr Row kRows[] = {
    {48, 6144, 64, 4, 1.143561e15, 1.202934e15, 1.519594e15},
    {96, 12288, 96, 64, 1.410915e17, 1.448914e17, 1.879571e17},
    {105, 20480, 128, 280, 1.852230e18, 1.882536e18, 2.468438e18},
    {128, 25600, 160, 512, 6.425876e18, 6.510318e18, 8.565086e18},
};

TEST(Flops, PublishedModels) {
  for (const Row& row : kRows) {
    const auto flops = [&](Recompute recompute, bool fused) {
      return hardware_flops(gpt(row.layers, row.hidden, row.heads), row.batch, 2048, recompute, fused);
    };
    for (bool fused : {false, true}) {
      EXPECT_NEAR(flops(Recompute::kNone, fused) / row.model, 1.0, 5e-7) << row.hidden;
      EXPECT_NEAR(flops(Recompute::kFull, fused) / row.full, 1.0, 5e-7) << row.hidden;
    }
    EXPECT_NEAR(flops(Recompute::kSelective, false) / row.selective, 1.0, 5e-7) << row.hidden;
    EXPECT_EQ(flops(Recompute::kSelective, true), flops(Recompute::kNone, true)) << row.hidden;
  }
}

TEST(Flops, ClosedFormOfSelective) {
  const double b = 64, l = 96, s = 2048, h = 12288, v = 51'200;
  const double expected = 72 * b * l * s * h * h * (1 + s / (3 * h) + v / (12 * h * l));
  EXPECT_NEAR(hardware_flops(gpt(96, 12288, 96), 64, 2048, Recompute::kSelective, false) / expected, 1.0, 1e-14);
}

}  // namespace
}  // namespace trireme::planner
