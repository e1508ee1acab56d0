#include "supervisor/run_tally.h"

#include <gtest/gtest.h>

namespace trireme::supervisor {
namespace {

TEST(RunTally, TheWayToTheNextNewStepIsTakenApart) {
  RunTally tally;
  tally.resumed(0, false, {1});
  for (int step = 1; step <= 3; ++step) EXPECT_FALSE(tally.step_done(step, {2}, {1.0 + 2 * step}));
  tally.saved(2);
  EXPECT_EQ(tally.durable(), 2);
  EXPECT_EQ(tally.useful_s(), 6);
  tally.failed("four", {8});
  tally.gone({9});
  tally.launched("two", {11});
  tally.connected({14});
  tally.resumed(2, true, {18});
  EXPECT_EQ(tally.useful_s(), 4);
  EXPECT_FALSE(tally.step_done(3, {2}, {23}));
  const std::optional<Recovery> recovery = tally.step_done(4, {2}, {29});
  ASSERT_TRUE(recovery);
  EXPECT_EQ(recovery->steps_lost, 1);
  EXPECT_EQ(recovery->end_s, 1);
  EXPECT_EQ(recovery->wait_s, 2);
  EXPECT_EQ(recovery->launch_s, 3);
  EXPECT_EQ(recovery->load_s, 4);
  EXPECT_EQ(recovery->repeat_s, 5);
  EXPECT_EQ(recovery->next_s, 6);
  EXPECT_EQ(recovery->layout_before, "four");
  EXPECT_EQ(recovery->layout_after, "two");
  EXPECT_EQ(tally.useful_s(), 8);
  EXPECT_FALSE(tally.recovering());
}

TEST(RunTally, ASecondFailureContinuesTheRecovery) {
  RunTally tally;
  tally.resumed(0, false, {0});
  tally.step_done(1, {1}, {1});
  tally.failed("four", {2});
  tally.launched("four", {3});
  tally.failed("four", {5});
  const std::optional<Recovery> recovery = tally.finished({9});
  ASSERT_TRUE(recovery);
  EXPECT_EQ(recovery->total_s(), 7);
}

TEST(RunTally, StepsWhoseWordWasLostDoNotTakeTheOthersWithThem) {
  RunTally tally;
  tally.resumed(0, false, {0});
  tally.step_done(1, {1}, {1});
  tally.failed("one", {2});
  tally.resumed(3, true, {3});
  EXPECT_EQ(tally.useful_s(), 1);
  tally.step_done(4, {1}, {4});
  EXPECT_EQ(tally.useful_s(), 2);
}

}  // namespace
}  // namespace trireme::supervisor
