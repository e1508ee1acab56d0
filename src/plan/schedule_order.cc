#include "plan/schedule_order.h"

#include <algorithm>

#include "base/check.h"

namespace trireme::plan {
namespace {

StageSchedule gpipe(int micro_batches) {
  StageSchedule order;
  for (ActionKind kind : {ActionKind::kForward, ActionKind::kBackward}) {
    for (int m = 0; m < micro_batches; ++m) order.push_back({.kind = kind, .micro_batch = m});
  }
  return order;
}

// Warm-up forwards, then one forward and one backward in turn, then the backwards that are left.
StageSchedule one_f_one_b(int pp, int micro_batches, int stage) {
  const int warm_up = std::min(micro_batches, pp - 1 - stage);
  StageSchedule order;
  for (int m = 0; m < warm_up; ++m) order.push_back({.kind = ActionKind::kForward, .micro_batch = m});
  for (int m = 0; m < micro_batches; ++m) {
    if (warm_up + m < micro_batches) order.push_back({.kind = ActionKind::kForward, .micro_batch = warm_up + m});
    order.push_back({.kind = ActionKind::kBackward, .micro_batch = m});
  }
  return order;
}

// The k-th forward of a stage: groups of pp micro-batches go through all chunks, one chunk after the other.
ChunkAction interleaved_action(ActionKind kind, int k, int pp, int interleave) {
  const int in_group = k % (pp * interleave);
  const int chunk = in_group / pp;
  return {.kind = kind,
          .micro_batch = k / (pp * interleave) * pp + in_group % pp,
          .chunk = kind == ActionKind::kForward ? chunk : interleave - 1 - chunk};
}

int interleaved_warm_up(int pp, int interleave, int micro_batches, int stage) {
  return std::min(micro_batches * interleave, 2 * (pp - stage - 1) + (interleave - 1) * pp);
}

StageSchedule interleaved(int pp, int interleave, int micro_batches, int stage) {
  TRIREME_CHECK_EQ(micro_batches % pp, 0);
  const int total = micro_batches * interleave;
  const int warm_up = interleaved_warm_up(pp, interleave, micro_batches, stage);
  StageSchedule order;
  for (int k = 0; k < warm_up; ++k) order.push_back(interleaved_action(ActionKind::kForward, k, pp, interleave));
  for (int k = 0; k < total; ++k) {
    if (warm_up + k < total) {
      order.push_back(interleaved_action(ActionKind::kForward, warm_up + k, pp, interleave));
    }
    order.push_back(interleaved_action(ActionKind::kBackward, k, pp, interleave));
  }
  return order;
}

// 1F1B with the weight pass apart and `stage` micro-batches late, which evens the memory over the stages at that of
// 1F1B's first, and puts weight passes where 1F1B waits.
StageSchedule zero_bubble_h1(int pp, int micro_batches, int stage) {
  const int warm_up = std::min(micro_batches, pp - 1 - stage);
  StageSchedule order;
  int next_weight = 0;
  for (int m = 0; m < warm_up; ++m) order.push_back({.kind = ActionKind::kForward, .micro_batch = m});
  for (int m = 0; m < micro_batches; ++m) {
    if (warm_up + m < micro_batches) order.push_back({.kind = ActionKind::kForward, .micro_batch = warm_up + m});
    order.push_back({.kind = ActionKind::kBackwardInput, .micro_batch = m});
    if (m >= stage) order.push_back({.kind = ActionKind::kBackwardWeight, .micro_batch = next_weight++});
  }
  while (next_weight < micro_batches) {
    order.push_back({.kind = ActionKind::kBackwardWeight, .micro_batch = next_weight++});
  }
  return order;
}

}  // namespace

StageSchedule work_order(ScheduleKind kind, int pp, int interleave, int micro_batches, int stage) {
  switch (kind) {
    case ScheduleKind::kGpipe:
      return gpipe(micro_batches);
    case ScheduleKind::kOneFOneB:
      return one_f_one_b(pp, micro_batches, stage);
    case ScheduleKind::kInterleaved:
      if (interleave == 1) return one_f_one_b(pp, micro_batches, stage);
      return interleaved(pp, interleave, micro_batches, stage);
    case ScheduleKind::kZeroBubbleH1:
      return zero_bubble_h1(pp, micro_batches, stage);
  }
  TRIREME_CHECK(false, "schedule {}", static_cast<int>(kind));
}

int in_flight_bound(ScheduleKind kind, int pp, int interleave, int micro_batches, int stage) {
  switch (kind) {
    case ScheduleKind::kGpipe:
      return micro_batches;
    case ScheduleKind::kZeroBubbleH1:
      return std::min(micro_batches, pp);
    case ScheduleKind::kInterleaved:
      if (interleave > 1) {
        return std::min(micro_batches * interleave, interleaved_warm_up(pp, interleave, micro_batches, stage) + 1);
      }
      [[fallthrough]];
    case ScheduleKind::kOneFOneB:
      return std::min(micro_batches, pp - stage);
  }
  TRIREME_CHECK(false, "schedule {}", static_cast<int>(kind));
}

}  // namespace trireme::plan
