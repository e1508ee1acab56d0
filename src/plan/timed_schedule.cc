#include "plan/timed_schedule.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "plan/schedule_order.h"

namespace trireme::plan {
namespace {

constexpr double kNotYet = -1.0;

class Simulation {
 public:
  Simulation(ScheduleKind kind, int pp, int interleave, int micro_batches, std::span<const ChunkTimes> times)
      : pp_(pp), last_(pp * interleave - 1), micro_batches_(micro_batches), times_(times) {
    TRIREME_CHECK_EQ(static_cast<int>(times.size()), pp * interleave);
    for (int stage = 0; stage < pp; ++stage) {
      work_.push_back(work_order(kind, pp, interleave, micro_batches, stage));
      actions_ += work_.back().size();
    }
    const std::size_t count = times.size() * static_cast<std::size_t>(micro_batches);
    for (std::vector<double>& there : there_) there.assign(count, kNotYet);
  }

  std::vector<TimedAction> run() {
    std::vector<std::size_t> next(work_.size(), 0);
    std::vector<double> free_at(work_.size(), 0.0);
    std::vector<TimedAction> timed;
    timed.reserve(actions_);
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t stage = 0; stage < work_.size(); ++stage) {
        while (next[stage] < work_[stage].size()) {
          const ChunkAction& action = work_[stage][next[stage]];
          const int at = action.chunk * pp_ + static_cast<int>(stage);
          const double ready = input_ready(at, action);
          if (ready == kNotYet) break;
          const double start = std::max(free_at[stage], ready);
          const double end = start + duration(at, action.kind);
          free_at[stage] = end + send(at, action.kind);
          timed.push_back({static_cast<int>(stage), action, start, end, free_at[stage]});
          finished(at, action, free_at[stage]);
          ++next[stage];
          moved = true;
        }
      }
    }
    for (std::size_t stage = 0; stage < work_.size(); ++stage) {
      TRIREME_CHECK(next[stage] == work_[stage].size(), "stage {} waits for ever at action {}", stage, next[stage]);
    }
    return timed;
  }

 private:
  enum Pass : std::size_t { kForwardPass, kBackwardPass };

  const ChunkTimes& times(int at) const { return times_[static_cast<std::size_t>(at)]; }
  double duration(int at, ActionKind kind) const {
    const ChunkTimes& t = times(at);
    switch (kind) {
      case ActionKind::kForward:
        return t.forward;
      case ActionKind::kBackward:
        return t.backward_input + t.backward_weight;
      case ActionKind::kBackwardInput:
        return t.backward_input;
      default:
        return t.backward_weight;
    }
  }
  double send(int at, ActionKind kind) const {
    if (pp_ == 1 || kind == ActionKind::kBackwardWeight) return 0.0;
    if (kind == ActionKind::kForward) return at == last_ ? 0.0 : times(at).send_activation;
    return at == 0 ? 0.0 : times(at).send_gradient;
  }

  std::size_t index(int at, int micro_batch) const {
    return static_cast<std::size_t>(at) * static_cast<std::size_t>(micro_batches_) +
           static_cast<std::size_t>(micro_batch);
  }
  // When what the action reads is there, or kNotYet.
  double input_ready(int at, const ChunkAction& action) const {
    switch (action.kind) {
      case ActionKind::kForward:
        return at == 0 ? 0.0 : there_[kForwardPass][index(at - 1, action.micro_batch)];
      case ActionKind::kBackward:
      case ActionKind::kBackwardInput:
        return at == last_ ? there_[kForwardPass][index(at, action.micro_batch)]
                           : there_[kBackwardPass][index(at + 1, action.micro_batch)];
      default:
        return there_[kBackwardPass][index(at, action.micro_batch)];
    }
  }
  void finished(int at, const ChunkAction& action, double when) {
    if (action.kind == ActionKind::kBackwardWeight) return;
    there_[action.kind == ActionKind::kForward ? kForwardPass : kBackwardPass][index(at, action.micro_batch)] = when;
  }

  int pp_;
  int last_;
  int micro_batches_;
  std::span<const ChunkTimes> times_;
  std::vector<StageSchedule> work_;
  std::size_t actions_ = 0;
  std::array<std::vector<double>, 2> there_;  // by pass: when the next virtual stage has it
};

}  // namespace

std::vector<TimedAction> timed_schedule(ScheduleKind kind, int pp, int interleave, int micro_batches,
                                        std::span<const ChunkTimes> times) {
  return Simulation(kind, pp, interleave, micro_batches, times).run();
}

double makespan(const std::vector<TimedAction>& timed) {
  double last = 0;
  for (const TimedAction& action : timed) last = std::max(last, action.free);
  return last;
}

}  // namespace trireme::plan
