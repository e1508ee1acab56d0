#include "supervisor/straggler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace trireme::supervisor {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Steps of given times, without noise.
class Steps {
 public:
  explicit Steps(std::vector<int> stage_of, StragglerPolicy policy = {}, int warm_up = 0)
      : detector_(policy, std::move(stage_of), warm_up) {}
  // `count` steps alike; who is found in them.
  std::vector<Straggler> take(int count, const std::vector<double>& times, Seconds took = {1}) {
    std::vector<Straggler> found;
    for (int i = 0; i < count; ++i) {
      for (const Straggler& straggler : detector_.add_step(++step_, times, took)) found.push_back(straggler);
    }
    return found;
  }
  bool is_slow(int rank) const { return detector_.is_slow(rank); }

 private:
  StragglerDetector detector_;
  std::int64_t step_ = 0;
};

TEST(Straggler, IsNamedOnceWithItsFactorAndTheStepItBegan) {
  Steps steps({0, 0, 0, 0, 1, 1, 1, 1});
  EXPECT_THAT(steps.take(30, {1, 1, 1, 1, 2, 2, 2, 2}), IsEmpty());
  EXPECT_THAT(steps.take(9, {1, 1, 1, 1, 2, 2.6, 2, 2}), IsEmpty());
  const std::vector<Straggler> found = steps.take(1, {1, 1, 1, 1, 2, 2.6, 2, 2});
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].rank, 5);
  EXPECT_DOUBLE_EQ(found[0].factor, 1.3);
  EXPECT_EQ(found[0].since_step, 31);
  EXPECT_EQ(found[0].compared_with, "3 ranks of its stage");
  EXPECT_TRUE(steps.is_slow(5));
  EXPECT_FALSE(steps.is_slow(4));
  EXPECT_THAT(steps.take(100, {1, 1, 1, 1, 2, 2.6, 2, 2}), IsEmpty());
}

TEST(Straggler, OfTwoRanksTheSlowOneIsNamed) {
  for (const int slow : {0, 1}) {
    Steps steps({0, 0});
    std::vector<double> times{1, 1};
    times[static_cast<std::size_t>(slow)] = 1.3;
    const std::vector<Straggler> found = steps.take(20, times);
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].rank, slow);
    EXPECT_EQ(found[0].compared_with, "1 rank of its stage");
  }
}

TEST(Straggler, AloneInItsStageIsComparedWithItsOwnFirstSteps) {
  Steps steps({0, 1, 2});
  EXPECT_THAT(steps.take(40, {1, 5, 3}), IsEmpty());
  const std::vector<Straggler> found = steps.take(20, {1, 6.5, 3});
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].rank, 1);
  EXPECT_DOUBLE_EQ(found[0].factor, 1.3);
  EXPECT_EQ(found[0].since_step, 41);
  EXPECT_EQ(found[0].compared_with, "its own first steps");
}

TEST(Straggler, OfTwoStagesOfOneRankEachTheSlowOneIsNamed) {
  for (const int slow : {0, 1}) {
    Steps steps({0, 1});
    EXPECT_THAT(steps.take(40, {1, 3}), IsEmpty());
    std::vector<double> times{1, 3};
    times[static_cast<std::size_t>(slow)] *= 1.3;
    const std::vector<Straggler> found = steps.take(20, times);
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].rank, slow);
  }
}

TEST(Straggler, EverybodySlowAtOnceIsNobodysFault) {
  for (const std::vector<int>& stage_of : {std::vector<int>{0, 0, 0, 0}, {0, 1, 2, 3}, {0, 0, 1, 1}}) {
    Steps steps(stage_of);
    EXPECT_THAT(steps.take(40, {1, 1, 1, 1}), IsEmpty());
    EXPECT_THAT(steps.take(100, {2, 2, 2, 2}), IsEmpty());
  }
  Steps alone({0});  // cannot be told from everybody
  EXPECT_THAT(alone.take(40, {1}), IsEmpty());
  EXPECT_THAT(alone.take(100, {2}), IsEmpty());
}

TEST(Straggler, TwoOfFourAreNamedBoth) {
  Steps steps({0, 0, 0, 0});
  const std::vector<Straggler> found = steps.take(20, {1.3, 1, 1, 1.5});
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].rank, 0);
  EXPECT_EQ(found[1].rank, 3);
}

TEST(Straggler, BelowTheMarginOrTooShortIsNotNamed) {
  Steps steps({0, 0, 0});
  EXPECT_THAT(steps.take(100, {1, 1, 1.19}), IsEmpty());
  for (int round = 0; round < 20; ++round) {
    EXPECT_THAT(steps.take(9, {1, 1, 3}), IsEmpty());
    EXPECT_THAT(steps.take(10, {1, 1, 1}), IsEmpty());
  }
}

TEST(Straggler, WhatIsSlowInMoreThanHalfOfTheStepsIsNamed) {
  Steps steps({0, 0, 0});
  std::vector<Straggler> found;
  for (int round = 0; round < 5; ++round) {
    for (const Straggler& straggler : steps.take(2, {1, 1, 1.5})) found.push_back(straggler);
    for (const Straggler& straggler : steps.take(1, {1, 1, 1})) found.push_back(straggler);
  }
  ASSERT_EQ(found.size(), 1U);
  EXPECT_DOUBLE_EQ(found[0].factor, 1.5);
  EXPECT_EQ(found[0].since_step, 1);
}

TEST(Straggler, RecoversAndIsNamedAgainIfItSlowsAgain) {
  Steps steps({0, 0, 0});
  EXPECT_EQ(steps.take(10, {1, 1, 1.3}).size(), 1U);
  EXPECT_THAT(steps.take(100, {1, 1, 1.15}), IsEmpty());  // between the two margins: as before
  EXPECT_TRUE(steps.is_slow(2));
  EXPECT_THAT(steps.take(9, {1, 1, 1}), IsEmpty());
  EXPECT_TRUE(steps.is_slow(2));
  EXPECT_THAT(steps.take(1, {1, 1, 1}), IsEmpty());
  EXPECT_FALSE(steps.is_slow(2));
  EXPECT_THAT(steps.take(100, {1, 1, 1.15}), IsEmpty());
  EXPECT_FALSE(steps.is_slow(2));
  const std::vector<Straggler> again = steps.take(10, {1, 1, 1.3});
  ASSERT_EQ(again.size(), 1U);
  EXPECT_EQ(again[0].since_step, 221);
}

TEST(Straggler, TheFirstStepsAreNotCounted) {
  Steps steps({0, 0, 0}, {.margin = 1.2, .patience = 2}, 5);
  EXPECT_THAT(steps.take(5, {1, 1, 9}), IsEmpty());
  EXPECT_THAT(steps.take(1, {1, 1, 9}), IsEmpty());
  EXPECT_EQ(steps.take(1, {1, 1, 9}).size(), 1U);
  Steps own({0, 1, 2}, {}, 5);  // nor in what a rank is compared with
  EXPECT_THAT(own.take(5, {1, 1, 9}), IsEmpty());
  EXPECT_THAT(own.take(StragglerDetector::kOwnSpans, {1, 1, 1}), IsEmpty());
  EXPECT_EQ(own.take(10, {1, 1, 1.3}).size(), 1U);
}

TEST(Straggler, ShortStepsAreJudgedTogether) {
  Steps steps({0, 0, 0}, {.span = {0.5}});
  const std::vector<double> well{0.1, 0.1, 0.1};
  const std::vector<double> slow{0.1, 0.1, 0.13};
  EXPECT_THAT(steps.take(100, well, {0.125}), IsEmpty());
  EXPECT_THAT(steps.take(39, slow, {0.125}), IsEmpty());  // 10 times 4 of them take half a second
  const std::vector<Straggler> found = steps.take(1, slow, {0.125});
  ASSERT_EQ(found.size(), 1U);
  EXPECT_DOUBLE_EQ(found[0].factor, 1.3);
  EXPECT_EQ(found[0].since_step, 101);
}

TEST(Straggler, TwoSecondsOfAnotherProcessAreNoSlowRank) {
  for (const double step_s : {0.01, 0.05, 0.3}) {
    Steps steps({0, 0});
    for (int round = 0; round < 20; ++round) {
      EXPECT_THAT(steps.take(static_cast<int>(2 / step_s), {step_s / 2, step_s}, {step_s}), IsEmpty());
      EXPECT_THAT(steps.take(static_cast<int>(8 / step_s), {step_s, step_s}, {step_s}), IsEmpty());
    }
  }
}

TEST(Straggler, RefusesWhatCannotBe) {
  EXPECT_THROW(StragglerDetector({.margin = 1}, {0}), InternalError);
  EXPECT_THROW(StragglerDetector({.patience = 0}, {0}), InternalError);
  StragglerDetector detector({}, {0, 0});
  EXPECT_THROW(detector.add_step(1, {1}, {1}), InternalError);
  EXPECT_THROW(detector.add_step(1, {1, 0}, {1}), InternalError);
  EXPECT_THROW(StragglerDetector({.span = {-1}}, {0}), InternalError);
}

}  // namespace
}  // namespace trireme::supervisor
