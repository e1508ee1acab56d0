#include "plan/schedule.h"

#include <functional>

#include <gtest/gtest.h>

#include "plan/schedule_order.h"

namespace trireme::plan {
namespace {

constexpr ScheduleKind kKinds[] = {ScheduleKind::kGpipe, ScheduleKind::kOneFOneB, ScheduleKind::kInterleaved,
                                   ScheduleKind::kZeroBubbleH1};

TEST(Schedule, EveryGeneratorPassesItsChecks) {
  int checked = 0;
  for (ScheduleKind kind : kKinds) {
    for (int pp = 1; pp <= 8; ++pp) {
      for (int interleave = 1; interleave <= 4; ++interleave) {
        if (interleave > 1 && (kind != ScheduleKind::kInterleaved || pp == 1)) continue;
        for (int m = 1; m <= 33; ++m) {
          if (interleave > 1 && m % pp != 0) continue;
          const Schedule schedule = make_schedule(kind, pp, interleave, m);
          ASSERT_EQ(check_schedule(schedule, kind, pp, interleave, m), "")
              << schedule_name(kind) << " pp " << pp << " interleave " << interleave << " micro-batches " << m;
          ++checked;
        }
      }
    }
  }
  EXPECT_GT(checked, 1000);
}

TEST(Schedule, InFlightIsWhatTheFormulasSay) {
  for (int pp = 1; pp <= 6; ++pp) {
    for (int m : {1, 2, 3, 7, 12}) {
      for (int stage = 0; stage < pp; ++stage) {
        const auto peak = [&](ScheduleKind kind) {
          return peak_in_flight(make_schedule(kind, pp, 1, m)[static_cast<std::size_t>(stage)]);
        };
        EXPECT_EQ(peak(ScheduleKind::kGpipe), m);
        EXPECT_EQ(peak(ScheduleKind::kOneFOneB), std::min(m, pp - stage));
        EXPECT_LE(peak(ScheduleKind::kZeroBubbleH1), std::min(m, pp));
      }
    }
  }
  // Narayanan et al. 2021: the first stage of 4, two chunks each, holds 2 * 3 + 4 + 1 of 16 micro-batch chunks.
  EXPECT_EQ(peak_in_flight(make_schedule(ScheduleKind::kInterleaved, 4, 2, 8)[0]), 11);
}

TEST(Schedule, InterleavedInFlightIsExact) {
  for (int pp = 2; pp <= 6; ++pp) {
    for (int v = 2; v <= 4; ++v) {
      for (int groups = 1; groups <= 4; ++groups) {
        const int m = groups * pp;
        const Schedule schedule = make_schedule(ScheduleKind::kInterleaved, pp, v, m);
        for (int s = 0; s < pp; ++s) {
          EXPECT_EQ(peak_in_flight(schedule[static_cast<std::size_t>(s)]),
                    std::min(m * v, 2 * (pp - s - 1) + (v - 1) * pp + 1))
              << "pp " << pp << " interleave " << v << " micro-batches " << m << " stage " << s;
        }
      }
    }
  }
}

// Durations of forward, backward-input and backward-weight of one chunk.
struct Durations {
  int forward = 1;
  int input = 1;
  int weight = 1;
  int of(ActionKind kind) const {
    switch (kind) {
      case ActionKind::kForward:
        return forward;
      case ActionKind::kBackward:
        return input + weight;
      case ActionKind::kBackwardInput:
        return input;
      case ActionKind::kBackwardWeight:
        return weight;
      default:
        return 0;
    }
  }
};

// When the last stage to finish has finished, where a transfer takes no time but holds both its ends until they meet.
int makespan(const Schedule& schedule, const Durations& durations) {
  std::vector<std::size_t> next(schedule.size(), 0);
  std::vector<int> time(schedule.size(), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t s = 0; s < schedule.size(); ++s) {
      while (next[s] < schedule[s].size()) {
        const ChunkAction& action = schedule[s][next[s]];
        if (action.peer >= 0) {
          const auto peer = static_cast<std::size_t>(action.peer);
          if (next[peer] == schedule[peer].size() || schedule[peer][next[peer]].peer != static_cast<int>(s)) break;
          time[s] = time[peer] = std::max(time[s], time[peer]);
          ++next[peer];
        } else {
          time[s] += durations.of(action.kind);
        }
        ++next[s];
        moved = true;
      }
    }
  }
  return *std::max_element(time.begin(), time.end());
}

// What a stage waits in all: (p - 1)(F + B + W) for GPipe and 1F1B (Huang et al. 2019; Narayanan et al. 2019),
// (p - 1)(F + B - W) for ZB-H1 (Qi et al. 2023, table 1), also where a transfer blocks both its ends.
TEST(Schedule, BubblesAreThoseOfTheLiterature) {
  for (const Durations& d : {Durations{1, 1, 1}, Durations{1, 2, 1}, Durations{2, 2, 2}}) {
    for (int pp = 1; pp <= 8; ++pp) {
      for (int m : {pp, 2 * pp, 4 * pp + 1}) {
        const int work = m * (d.forward + d.input + d.weight);
        const auto bubble = [&](ScheduleKind kind) { return makespan(make_schedule(kind, pp, 1, m), d) - work; };
        EXPECT_EQ(bubble(ScheduleKind::kGpipe), (pp - 1) * (d.forward + d.input + d.weight));
        EXPECT_EQ(bubble(ScheduleKind::kOneFOneB), (pp - 1) * (d.forward + d.input + d.weight));
        EXPECT_EQ(bubble(ScheduleKind::kZeroBubbleH1), (pp - 1) * (d.forward + d.input - d.weight));
      }
    }
  }
}

TEST(Schedule, OneFOneBIsTheKnownOrder) {
  // Stage 1 of 2 with three micro-batches: forward and backward in turn; stage 0 runs one forward ahead.
  const Schedule s = make_schedule(ScheduleKind::kOneFOneB, 2, 1, 3);
  std::string work;
  for (const ChunkAction& action : s[0]) {
    if (action.kind == ActionKind::kForward) work += "F" + std::to_string(action.micro_batch);
    if (action.kind == ActionKind::kBackward) work += "B" + std::to_string(action.micro_batch);
  }
  EXPECT_EQ(work, "F0F1B0F2B1B2");
}

struct Fault {
  const char* name;
  std::function<void(Schedule&)> plant;
};

TEST(ScheduleCheck, FindsPlantedFaults) {
  const auto index_of = [](const StageSchedule& stage, ActionKind kind, int micro_batch) {
    for (std::size_t i = 0; i < stage.size(); ++i) {
      if (stage[i].kind == kind && stage[i].micro_batch == micro_batch) return i;
    }
    return stage.size();
  };
  const std::vector<Fault> faults = {
      {"dropped", [](Schedule& s) { s[1].erase(s[1].begin()); }},
      {"doubled", [](Schedule& s) { s[1].push_back(s[1].back()); }},
      {"a stage less", [](Schedule& s) { s.pop_back(); }},
      {"forward before its input",
       [&](Schedule& s) {
         std::swap(s[1][index_of(s[1], ActionKind::kForward, 0)],
                   s[1][index_of(s[1], ActionKind::kReceiveActivation, 0)]);
       }},
      {"backwards swapped",
       [&](Schedule& s) {
         std::swap(s[3][index_of(s[3], ActionKind::kBackward, 0)].micro_batch,
                   s[3][index_of(s[3], ActionKind::kBackward, 1)].micro_batch);
       }},
      {"gradient sent before it is made",
       [&](Schedule& s) {
         std::swap(s[3][index_of(s[3], ActionKind::kBackward, 0)], s[3][index_of(s[3], ActionKind::kSendGradient, 0)]);
       }},
      {"wrong peer", [&](Schedule& s) { s[0][index_of(s[0], ActionKind::kSendActivation, 0)].peer = 2; }},
      {"receive too late: deadlock",
       [&](Schedule& s) {
         const std::size_t at = index_of(s[0], ActionKind::kReceiveGradient, 0);
         const ChunkAction moved = s[0][at];
         s[0].erase(s[0].begin() + static_cast<std::ptrdiff_t>(at));
         const std::size_t later = index_of(s[0], ActionKind::kSendActivation, 5);
         s[0].insert(s[0].begin() + static_cast<std::ptrdiff_t>(later) + 1, moved);
       }},
      {"too many in flight",
       [&](Schedule& s) {
         const std::size_t at = index_of(s[3], ActionKind::kBackward, 0);
         const std::size_t later = index_of(s[3], ActionKind::kForward, 1);
         const ChunkAction moved = s[3][later];
         s[3].erase(s[3].begin() + static_cast<std::ptrdiff_t>(later));
         s[3].insert(s[3].begin() + static_cast<std::ptrdiff_t>(at), moved);
       }},
  };
  for (const Fault& fault : faults) {
    Schedule schedule = make_schedule(ScheduleKind::kOneFOneB, 4, 1, 8);
    ASSERT_EQ(check_schedule(schedule, ScheduleKind::kOneFOneB, 4, 1, 8), "");
    fault.plant(schedule);
    EXPECT_NE(check_schedule(schedule, ScheduleKind::kOneFOneB, 4, 1, 8), "") << fault.name;
  }
}

}  // namespace
}  // namespace trireme::plan
