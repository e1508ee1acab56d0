// Layouts that compute the same thing, in every precision: `verify` raises no alarm. The whole matrix is
// verify_matrix_test.cc.

#include "faults/verify_matrix.h"

#include <gtest/gtest.h>

namespace trireme::testing {
namespace {

TEST(Healthy, ASampleOfTheMatrixRaisesNoAlarm) {
  const std::vector<HealthyCase> all = healthy_cases({1, 2, 3, 4, 5, 6, 7});
  std::vector<HealthyCase> sample;
  for (std::size_t i = 0; i < all.size(); i += 31) sample.push_back(all[i]);
  const HealthyCount count = count_alarms(sample);
  EXPECT_EQ(count.alarms, 0);
  EXPECT_LT(count.largest, 0.9);
}

}  // namespace
}  // namespace trireme::testing
