#include "supervisor/patience.h"

#include <cmath>

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/random.h"

namespace trireme::supervisor {
namespace {

using telemetry::Phase;

TEST(Patience, IsGenerousUntilTheFirstStepIsDoneAndInPhasesNeverSeen) {
  Patience patience({});
  patience.learn(Phase::kForward, {2});
  EXPECT_EQ(patience.deadline(Phase::kForward), Seconds{600});
  patience.step_done({10});
  EXPECT_EQ(patience.deadline(Phase::kForward), Seconds{6});
  EXPECT_EQ(patience.deadline(Phase::kSave), Seconds{600});
  EXPECT_EQ(patience.deadline(Phase::kValidation), Seconds{600});
}

TEST(Patience, AStepStandsInForPhasesOfItThatHaveNoGapYet) {
  Patience patience({});
  patience.step_done({10});
  for (const Phase phase : {Phase::kForward, Phase::kBackward, Phase::kReduce, Phase::kOptimizer}) {
    EXPECT_EQ(patience.deadline(phase), Seconds{30});
  }
  for (const Phase phase : {Phase::kStart, Phase::kLoad, Phase::kIdle, Phase::kSave, Phase::kFinish}) {
    EXPECT_EQ(patience.deadline(phase), Seconds{600});
  }
}

TEST(Patience, HasAFloorAndACap) {
  Patience patience({.start = {600}, .floor = {1}, .most = {120}, .factor = 3});
  patience.step_done({100});
  EXPECT_EQ(patience.deadline(Phase::kReduce), Seconds{120});
  patience.learn(Phase::kForward, {0.25});
  EXPECT_EQ(patience.deadline(Phase::kForward), Seconds{1});
  patience.learn(Phase::kForward, {39});
  EXPECT_EQ(patience.deadline(Phase::kForward), Seconds{117});
  patience.learn(Phase::kForward, {41});
  EXPECT_EQ(patience.deadline(Phase::kForward), Seconds{120});
}

TEST(Patience, RemembersTheLongestOfTheLastTwoHundred) {
  Patience patience({});
  patience.step_done({1});
  patience.learn(Phase::kBackward, {10});
  patience.learn(Phase::kBackward, {4});
  for (int i = 0; i < 198; ++i) patience.learn(Phase::kBackward, {1});
  EXPECT_EQ(patience.deadline(Phase::kBackward), Seconds{30});
  patience.learn(Phase::kBackward, {1});  // the 10 was 201 ago
  EXPECT_EQ(patience.deadline(Phase::kBackward), Seconds{12});
  patience.learn(Phase::kBackward, {1});
  EXPECT_EQ(patience.deadline(Phase::kBackward), Seconds{3});
  for (int i = 0; i < 200; ++i) patience.learn(Phase::kForward, {5});  // another phase
  EXPECT_EQ(patience.deadline(Phase::kBackward), Seconds{3});
}

// Against the longest of a window that is searched.
TEST(Patience, AgreesWithASearch) {
  Patience patience({.start = {600}, .floor = {1e-9}, .most = {1e9}, .factor = 2});
  patience.step_done({1});
  std::vector<double> gaps;
  const RandomKey key{1, stream_of("patience", "search")};
  for (std::uint64_t i = 0; i < 2000; ++i) {
    gaps.push_back(0.5 + std::floor(16 * static_cast<double>(random_uniform(key, i))));
    patience.learn(Phase::kIdle, {gaps.back()});
    double longest = 0;
    for (std::size_t k = gaps.size() > 200 ? gaps.size() - 200 : 0; k < gaps.size(); ++k) {
      longest = std::max(longest, gaps[k]);
    }
    ASSERT_EQ(patience.deadline(Phase::kIdle).count, 2 * longest) << i;
  }
}

TEST(Patience, ARestartIsGenerousOnceMoreAndForgetsNothing) {
  Patience patience({});
  patience.learn(Phase::kForward, {2});
  patience.step_done({10});
  patience.restart();
  EXPECT_EQ(patience.deadline(Phase::kForward), Seconds{600});
  patience.step_done({10});
  EXPECT_EQ(patience.deadline(Phase::kForward), Seconds{6});
}

TEST(Patience, RefusesWhatCannotBe) {
  EXPECT_THROW(Patience({.start = {0}}), InternalError);
  EXPECT_THROW(Patience({.floor = {2}, .most = {1}}), InternalError);
  EXPECT_THROW(Patience({.factor = 0.5}), InternalError);
  EXPECT_THROW(Patience({}).learn(Phase::kIdle, {-1}), InternalError);
  EXPECT_THROW(Patience({}).step_done({NAN}), InternalError);
}

// Steps of four phases with jitter of 5 % and a gap in 1,000 twice as long; each 100 steps a validation, each 500 a
// save that takes 100 steps' time.
class NoisyRun {
 public:
  explicit NoisyRun(std::uint64_t seed) : key_{seed, stream_of("patience", "run")} {}

  // Gaps that were longer than patience lasted.
  int false_hangs(int steps, Patience& patience) {
    for (int step = 1; step <= steps; ++step) {
      double length = 0;
      for (const auto& [phase, gap] : {std::pair{Phase::kIdle, 0.01},
                                       {Phase::kForward, 0.4},
                                       {Phase::kBackward, 0.8},
                                       {Phase::kReduce, 0.6},
                                       {Phase::kOptimizer, 0.2}}) {
        length += pass(phase, gap, patience);
      }
      if (step % 100 == 0) pass(Phase::kValidation, 20, patience);
      if (step % 500 == 0) pass(Phase::kSave, 200, patience);
      patience.step_done({length});
    }
    return false_hangs_;
  }

 private:
  double pass(Phase phase, double typical, Patience& patience) {
    const bool twice = random_uniform(key_, draws_++) < 0.001F;
    const double gap = typical * std::exp(0.05 * random_normal(key_, draws_++)) * (twice ? 2 : 1);
    if (Seconds{gap} > patience.deadline(phase)) ++false_hangs_;
    patience.learn(phase, {gap});
    return gap;
  }

  RandomKey key_;
  std::uint64_t draws_ = 0;
  int false_hangs_ = 0;
};

TEST(Patience, NoFalseHangInAHundredThousandStepsAndARealOneIsFoundSoon) {
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    Patience patience({.start = {900}, .floor = {1}, .most = {900}, .factor = 3});
    EXPECT_EQ(NoisyRun(seed).false_hangs(100'000, patience), 0) << seed;
    EXPECT_LT(patience.deadline(Phase::kForward).count, 0.4 * 3 * 2.5);
    EXPECT_LT(patience.deadline(Phase::kBackward).count, 0.8 * 3 * 2.5);
    EXPECT_EQ(patience.deadline(Phase::kIdle).count, 1);
    EXPECT_GT(patience.deadline(Phase::kSave).count, 450);
  }
}

}  // namespace
}  // namespace trireme::supervisor
