#include "planner/pipeline_time.h"

#include <algorithm>

#include "base/check.h"

namespace trireme::planner {
namespace {

using plan::ScheduleKind;

double gpipe_time(int m, std::span<const StageTimes> stages) {
  double forward = 0, backward = 0, most_forward = 0, most_backward = 0;
  for (const StageTimes& stage : stages) {
    const double b = stage.backward_input + stage.backward_weight;
    forward += stage.forward;
    backward += b;
    most_forward = std::max(most_forward, stage.forward);
    most_backward = std::max(most_backward, b);
  }
  return forward + backward + (m - 1) * (most_forward + most_backward);
}

double interleaved_time(int m, std::span<const StageTimes> stages, std::span<const StageTimes> first_chunk) {
  double before = 0, best = 0;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const StageTimes& t = stages[s];
    best = std::max(best, before + m * (t.forward + t.backward_input + t.backward_weight));
    const StageTimes& first = first_chunk[s];
    before += first.forward + first.backward_input + first.backward_weight;
  }
  return best;
}

// 1F1B and ZB-H1 share the order of forwards and backwards: min(m, p - 1 - s) forwards of warm-up, then one of each in
// turn. ZB-H1's weight passes come s micro-batches late; for 1F1B they are part of its backward (weight time 0 here).
// Names: f, b, w a stage's durations; F[s], B[s] their sums over stages before s.
class TurnPaths {
 public:
  TurnPaths(int m, std::span<const StageTimes> stages, bool split)
      : m_(m), p_(static_cast<int>(stages.size())), stages_(stages), split_(split) {}

  double longest() {
    tails();
    double forward = 0, backward = 0;
    for (int s = 0; s < p_; ++s) {
      forward += f(s);
      backward += b(s);
    }
    // From the last stage back, the best turn among the stages at or after s.
    double warm = 0, cool = 0, best = 0;
    for (int s = p_ - 1; s >= 0; --s) {
      const double f_end = forward, b_end = backward;
      forward -= f(s);
      backward -= b(s);
      const int turns = std::min(warm_up(s), m_ - 1);
      // First micro-batch: forwards to s, the warm-up there, its backward: up to where B(s, 0) starts from above.
      warm = std::max(warm, f_end + turns * f(s) + b_end);
      // Last micro-batch: forwards to s, the backwards of its cool-down, its own backward and all below.
      const int weights = std::max(0, m_ - 1 - std::max(m_ - 1 - warm_up(s), s));
      cool = std::max(cool, f_end + turns * b(s) + weights * w(s) + b(s) + tail_[static_cast<std::size_t>(s)]);
      best = std::max(best, through(s, forward, backward, warm, cool));
    }
    return best;
  }

 private:
  const StageTimes& at(int s) const { return stages_[static_cast<std::size_t>(s)]; }
  double f(int s) const { return at(s).forward; }
  double b(int s) const { return at(s).backward_input + (split_ ? 0.0 : at(s).backward_weight); }
  double w(int s) const { return split_ ? at(s).backward_weight : 0.0; }
  int warm_up(int s) const { return std::min(m_, p_ - 1 - s); }

  // tail_[s]: after the last backward-input of stage s: the weight passes left at s, or below and those left there.
  void tails() {
    tail_.resize(static_cast<std::size_t>(p_));
    for (int s = 0; s < p_; ++s) {
      const double own = std::min(m_, s + 1) * w(s);
      const double below = s > 0 ? b(s - 1) + tail_[static_cast<std::size_t>(s - 1)] : 0.0;
      tail_[static_cast<std::size_t>(s)] = std::max(own, below);
    }
  }

  // The longest of four paths that stay on stage s between start and end; `forward`, `backward`: sums before s.
  double through(int s, double forward, double backward, double warm, double cool) const {
    const int late = m_ - 1 - warm_up(s);  // forwards after the first backward
    const double prefix = warm - backward, suffix = cool - forward, tail = tail_[static_cast<std::size_t>(s)];
    const int weights = std::max(0, m_ - 1 - s);
    const double stay = forward + m_ * (f(s) + b(s)) + weights * w(s) + tail;
    const double from_warm = prefix + (m_ - 1) * b(s) + std::max(0, late) * f(s) + weights * w(s) + tail;
    const double to_cool = forward + (m_ - 1) * f(s) + std::max(0, late) * b(s) + std::max(0, late - s) * w(s) + suffix;
    double best = std::max({stay, from_warm, to_cool});
    if (late >= 1) best = std::max(best, prefix + (late - 1) * (f(s) + b(s)) + std::max(0, late - s) * w(s) + suffix);
    return best;
  }

  int m_;
  int p_;
  std::span<const StageTimes> stages_;
  bool split_;
  std::vector<double> tail_;
};

}  // namespace

double pipeline_time(ScheduleKind kind, int micro_batches, std::span<const StageTimes> stages,
                     std::span<const StageTimes> first_chunk) {
  TRIREME_CHECK(micro_batches >= 1 && !stages.empty(), "{} micro-batches, {} stages", micro_batches, stages.size());
  switch (kind) {
    case ScheduleKind::kGpipe:
      return gpipe_time(micro_batches, stages);
    case ScheduleKind::kInterleaved:
      if (first_chunk.size() == stages.size()) return interleaved_time(micro_batches, stages, first_chunk);
      [[fallthrough]];  // one chunk a stage
    case ScheduleKind::kOneFOneB:
      return TurnPaths(micro_batches, stages, false).longest();
    case ScheduleKind::kZeroBubbleH1:
      return TurnPaths(micro_batches, stages, true).longest();
  }
  TRIREME_CHECK(false, "schedule {}", static_cast<int>(kind));
}

double simulated_pipeline_time(ScheduleKind kind, int pp, int interleave, int micro_batches,
                               std::span<const plan::ChunkTimes> times) {
  const auto simulate = [&](int count) {
    return plan::makespan(plan::timed_schedule(kind, pp, interleave, count, times));
  };
  // Once full, a pipeline repeats with every pp micro-batches, so a long step is a line through two shorter ones.
  constexpr int kMostActions = 1 << 15;  // forwards
  const int rounds = std::max(4, kMostActions / (2 * pp * pp * interleave));
  const int fewer = micro_batches % pp + rounds * pp, more = fewer + rounds * pp;
  if (micro_batches <= more) return simulate(micro_batches);
  const double time = simulate(more);
  return time + (time - simulate(fewer)) / (more - fewer) * (micro_batches - more);
}

}  // namespace trireme::planner
