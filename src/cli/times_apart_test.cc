#include "cli/times_apart.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::cli {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(TimesApart, NoMoreDigitsThanAreNeeded) {
  EXPECT_THAT(times_apart({7.94, 7.95, 8.01}), ElementsAre("7.94 s", "7.95 s", "8.01 s"));
  EXPECT_THAT(times_apart({7.941, 7.9438, 8.01}), ElementsAre("7.941 s", "7.944 s", "8.010 s"));
  EXPECT_THAT(times_apart({7.94001, 7.94004}), ElementsAre("7.94001 s", "7.94004 s"));
  EXPECT_THAT(times_apart({0.02531, 0.02534, 1.5}), ElementsAre("25.31 ms", "25.34 ms", "1.500 s"));
  EXPECT_THAT(times_apart({1}), ElementsAre("1.00 s"));
  EXPECT_THAT(times_apart({}), IsEmpty());
}

TEST(TimesApart, SaysWhatIsEqual) {
  EXPECT_THAT(times_apart({7.94, 7.94, 7.9400000001}), ElementsAre("7.94 s", "=7.94 s", "=7.94 s"));
  EXPECT_THAT(times_apart({7.94, 7.941, 7.941}), ElementsAre("7.940 s", "7.941 s", "=7.941 s"));
  EXPECT_THAT(times_apart({0, 0}), ElementsAre("0 s", "=0 s"));
}

TEST(TimesApart, WhatIsNotSortedOrNotFinite) {
  EXPECT_THAT(times_apart({2, 1, 2}), ElementsAre("2.00 s", "1.00 s", "2.00 s"));
  const double infinite = std::numeric_limits<double>::infinity();
  EXPECT_EQ(times_apart({1, infinite}).size(), 2U);
}

TEST(TimesApart, AsAColumn) {
  EXPECT_THAT(times_column({7.94, 7.94}, 9), ElementsAre("   7.94 s", "  =7.94 s"));
  EXPECT_THAT(times_column({7.94001, 7.94009}, 3), ElementsAre("7.9400 s", "7.9401 s"));
}

}  // namespace
}  // namespace trireme::cli
