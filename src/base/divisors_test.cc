#include "base/divisors.h"

#include <cstdint>

#include <gtest/gtest.h>

namespace trireme {
namespace {

TEST(Divisors, Ascending) {
  EXPECT_EQ(divisors(1), std::vector<int>({1}));
  EXPECT_EQ(divisors(7), std::vector<int>({1, 7}));
  EXPECT_EQ(divisors(12), std::vector<int>({1, 2, 3, 4, 6, 12}));
  EXPECT_EQ(divisors(36), std::vector<int>({1, 2, 3, 4, 6, 9, 12, 18, 36}));
  EXPECT_EQ(divisors(std::int64_t{1} << 40).size(), 41u);
  EXPECT_EQ(divisors(2147483647), std::vector<int>({1, 2147483647}));
}

TEST(NearestOf, BelowAndAbove) {
  const std::vector<int> legal{2, 4, 8};
  EXPECT_EQ(nearest_of(legal, 3), "2, 4");
  EXPECT_EQ(nearest_of(legal, 1), "2");
  EXPECT_EQ(nearest_of(legal, 9), "8");
  EXPECT_EQ(nearest_of(std::vector<int>{}, 3), "");
}

}  // namespace
}  // namespace trireme
