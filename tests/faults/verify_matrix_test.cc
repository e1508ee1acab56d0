// 16 seeds of every healthy case: how often `verify` calls one different (never), and how near to a bound it comes.

#include "faults/verify_matrix.h"

#include <numeric>

#include <gtest/gtest.h>

namespace trireme::testing {
namespace {

TEST(VerifyMatrix, RaisesNoAlarm) {
  std::vector<int> seeds(16);
  std::iota(seeds.begin(), seeds.end(), 1);
  const HealthyCount count = count_alarms(healthy_cases(seeds));
  EXPECT_EQ(count.runs, 1152);
  EXPECT_EQ(count.alarms, 0);
  EXPECT_LT(count.largest, 0.9);
}

}  // namespace
}  // namespace trireme::testing
