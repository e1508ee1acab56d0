#include "plan/timed_schedule.h"

#include <gtest/gtest.h>

namespace trireme::plan {
namespace {

double span(ScheduleKind kind, int pp, int interleave, int m, const ChunkTimes& times) {
  const std::vector<ChunkTimes> all(static_cast<std::size_t>(pp * interleave), times);
  return makespan(timed_schedule(kind, pp, interleave, m, all));
}

// Ideal time m (F + B + W), and the bubbles of Narayanan et al. 2021 and Qi et al. 2023.
TEST(TimedSchedule, UniformStagesHaveTheBubblesOfTheLiterature) {
  const ChunkTimes t{.forward = 1, .backward_input = 1, .backward_weight = 1};
  EXPECT_EQ(span(ScheduleKind::kGpipe, 4, 1, 16, t), (16 + 3) * 3.0);
  EXPECT_EQ(span(ScheduleKind::kOneFOneB, 4, 1, 16, t), (16 + 3) * 3.0);
  EXPECT_EQ(span(ScheduleKind::kInterleaved, 4, 2, 16, t), (2 * 16 + 3) * 3.0);
  EXPECT_EQ(span(ScheduleKind::kZeroBubbleH1, 4, 1, 16, t), 16 * 3.0 + 3 * (1 + 1 - 1.0));
}

TEST(TimedSchedule, ASendKeepsItsSenderBusyAndDelaysItsReceiver) {
  // Two stages, one micro-batch: forward, send, forward, backward, send, backward.
  const ChunkTimes t{
      .forward = 1, .backward_input = 2, .backward_weight = 3, .send_activation = 10, .send_gradient = 20};
  EXPECT_EQ(span(ScheduleKind::kOneFOneB, 2, 1, 1, t), 1 + 10 + 1 + 5 + 20 + 5.0);
  // The ends send nothing, and one stage sends nothing to itself.
  EXPECT_EQ(span(ScheduleKind::kOneFOneB, 1, 1, 4, t), 4 * 6.0);
}

TEST(TimedSchedule, EveryPieceOfWorkIsThereOnceAndInOrder) {
  const std::vector<ChunkTimes> times(6, {.forward = 1, .backward_input = 1, .backward_weight = 1});
  const std::vector<TimedAction> timed = timed_schedule(ScheduleKind::kInterleaved, 3, 2, 6, times);
  EXPECT_EQ(timed.size(), 3u * 2 * 6 * 2);
  std::vector<double> free_at(3, 0.0);
  for (const TimedAction& action : timed) {
    EXPECT_GE(action.start, free_at[static_cast<std::size_t>(action.stage)]);
    free_at[static_cast<std::size_t>(action.stage)] = action.free;
  }
}

}  // namespace
}  // namespace trireme::plan
