#pragma once

// Pipeline schedules as data: for each stage the ordered chunk actions of one step. Pure functions make them; the
// executor runs them, the planner simulates them, checks prove them.

#include <string>
#include <vector>

#include "plan/layout.h"

namespace trireme::plan {

enum class ActionKind {
  kForward,
  kBackward,       // backward-input and backward-weight of every unit, one after the other
  kBackwardInput,  // zero-bubble schedules split them
  kBackwardWeight,
  kSendActivation,     // to the next virtual stage
  kReceiveActivation,  // from the one before
  kSendGradient,       // to the one before
  kReceiveGradient,    // from the next
};
std::string_view action_name(ActionKind kind);

struct ChunkAction {
  ActionKind kind = ActionKind::kForward;
  int micro_batch = 0;
  int chunk = 0;  // of this stage
  int peer = -1;  // stage at the other end of a send or receive; -1 otherwise. Never the own stage: a chunk handed
                  // to the same stage (pp = 1) is no message.
  friend bool operator==(const ChunkAction&, const ChunkAction&) = default;
};
using StageSchedule = std::vector<ChunkAction>;
using Schedule = std::vector<StageSchedule>;  // by stage

// kGpipe: all forwards, then all backwards, ascending. kOneFOneB: p - 1 - s forwards of warm-up (Narayanan et al.
// 2019). kInterleaved (Narayanan et al. 2021, section 2.2): micro_batches % pp == 0; with one chunk a stage it is
// 1F1B, for any number of micro-batches. kZeroBubbleH1 (Qi et al. 2023):
// 1F1B's memory, weight passes delayed into the bubble. Sends and receives are placed so that blocking rendezvous on
// any backend cannot deadlock. Backwards, and weight passes of every chunk, come in ascending micro-batch order.
Schedule make_schedule(ScheduleKind kind, int pp, int interleave, int micro_batches);

// "" if the schedule is right, else what is wrong: each action exactly once; every dependency before its user; no
// deadlock even where a send completes only with its receive; ascending micro-batches for every chunk's gradient;
// in flight (forwards not yet followed by the end of their backward) within bound a stage.
std::string check_schedule(const Schedule& schedule, ScheduleKind kind, int pp, int interleave, int micro_batches);

// Most micro-batch chunks whose activations a stage holds at once.
int peak_in_flight(const StageSchedule& schedule);

}  // namespace trireme::plan
