#pragma once

// The order of work on one stage, without its transfers: what makes a schedule the one that it is.

#include "plan/schedule.h"

namespace trireme::plan {

StageSchedule work_order(ScheduleKind kind, int pp, int interleave, int micro_batches, int stage);

// Most micro-batch chunks in flight that the schedule's literature gives for a stage:
// GPipe m; 1F1B min(m, p - s); interleaved min(m v, 2 (p - s - 1) + (v - 1) p + 1); ZB-H1 min(m, p).
int in_flight_bound(ScheduleKind kind, int pp, int interleave, int micro_batches, int stage);

}  // namespace trireme::plan
