#include "plan/schedule.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "plan/schedule_order.h"

namespace trireme::plan {
namespace {

bool is_work(ActionKind kind) {
  return kind == ActionKind::kForward || kind == ActionKind::kBackward || kind == ActionKind::kBackwardInput ||
         kind == ActionKind::kBackwardWeight;
}

// One schedule's stages and chunks: chunk c of stage s is virtual stage c * pp + s.
struct Shape {
  int pp;
  int interleave;
  int virtual_stage(int stage, int chunk) const { return chunk * pp + stage; }
  int last() const { return pp * interleave - 1; }
};

// A piece of work in simulated time.
struct Timed {
  int stage = 0;
  ChunkAction action;
  std::int64_t start = 0;
  std::int64_t end = 0;
};

std::int64_t duration(ActionKind kind) { return kind == ActionKind::kBackward ? 2 : 1; }

// Runs the stages' work in their orders, each as soon as its input is there; transfers take no time.
class Simulation {
 public:
  Simulation(const std::vector<StageSchedule>& work, Shape shape, int micro_batches)
      : work_(work), shape_(shape), micro_batches_(micro_batches) {
    const std::size_t count = static_cast<std::size_t>(shape.last() + 1) * static_cast<std::size_t>(micro_batches);
    for (std::vector<std::int64_t>& ends : ends_) ends.assign(count, -1);
  }

  std::vector<Timed> run() {
    std::vector<std::size_t> next(work_.size(), 0);
    std::vector<std::int64_t> free_at(work_.size(), 0);
    std::vector<Timed> timed;
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t stage = 0; stage < work_.size(); ++stage) {
        while (next[stage] < work_[stage].size()) {
          const ChunkAction& action = work_[stage][next[stage]];
          const std::int64_t ready = input_ready(static_cast<int>(stage), action);
          if (ready < 0) break;
          const std::int64_t start = std::max(free_at[stage], ready);
          const std::int64_t end = start + duration(action.kind);
          timed.push_back({static_cast<int>(stage), action, start, end});
          finished(static_cast<int>(stage), action, end);
          free_at[stage] = end;
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
  struct Key {
    bool backward;
    int virtual_stage;
    int micro_batch;
  };

  // When what the action reads is there; -1: not yet known.
  std::int64_t input_ready(int stage, const ChunkAction& action) const {
    const int at = shape_.virtual_stage(stage, action.chunk);
    switch (action.kind) {
      case ActionKind::kForward:
        return at == 0 ? 0 : end_of({false, at - 1, action.micro_batch});
      case ActionKind::kBackward:
      case ActionKind::kBackwardInput:
        return end_of(at == shape_.last() ? Key{false, at, action.micro_batch} : Key{true, at + 1, action.micro_batch});
      default:
        return end_of({true, at, action.micro_batch});
    }
  }
  std::size_t index(const Key& key) const {
    return static_cast<std::size_t>(key.virtual_stage) * static_cast<std::size_t>(micro_batches_) +
           static_cast<std::size_t>(key.micro_batch);
  }
  std::int64_t end_of(const Key& key) const { return ends_[key.backward ? 1 : 0][index(key)]; }
  void finished(int stage, const ChunkAction& action, std::int64_t end) {
    if (action.kind == ActionKind::kBackwardWeight) return;
    const bool backward = action.kind != ActionKind::kForward;
    ends_[backward ? 1 : 0][index({backward, shape_.virtual_stage(stage, action.chunk), action.micro_batch})] = end;
  }

  const std::vector<StageSchedule>& work_;
  Shape shape_;
  int micro_batches_;
  std::array<std::vector<std::int64_t>, 2> ends_;  // forward, backward; by virtual stage and micro-batch; -1: not yet
};

// Transfers are placed in one global order of work and transfers, each stage keeping its part of it: at the moment when
// the sender has finished. Since a transfer is one event of that order for both its ends, blocking rendezvous can
// follow the order, and cannot deadlock.
struct Event {
  const Timed* work = nullptr;
  bool transfer = false;
};

void append_transfer(Schedule& schedule, const Timed& work, Shape shape) {
  const bool forward = work.action.kind == ActionKind::kForward;
  const int to = shape.virtual_stage(work.stage, work.action.chunk) + (forward ? 1 : -1);
  const int peer = to % shape.pp;
  schedule[static_cast<std::size_t>(work.stage)].push_back(
      {.kind = forward ? ActionKind::kSendActivation : ActionKind::kSendGradient,
       .micro_batch = work.action.micro_batch,
       .chunk = work.action.chunk,
       .peer = peer});
  schedule[static_cast<std::size_t>(peer)].push_back(
      {.kind = forward ? ActionKind::kReceiveActivation : ActionKind::kReceiveGradient,
       .micro_batch = work.action.micro_batch,
       .chunk = to / shape.pp,
       .peer = work.stage});
}

bool sends(const Timed& work, Shape shape) {
  const int at = shape.virtual_stage(work.stage, work.action.chunk);
  if (work.action.kind == ActionKind::kForward) return at != shape.last();
  return work.action.kind != ActionKind::kBackwardWeight && at != 0;
}

// Ordered by time; at the same time transfers come before work; then as `timed` has them. Times are small integers, so
// the sort counts.
std::vector<Event> in_order(const std::vector<Timed>& timed, Shape shape) {
  const auto slot = [](const Event& event) {
    return static_cast<std::size_t>(event.transfer ? 2 * event.work->end : 2 * event.work->start + 1);
  };
  std::vector<Event> events;
  std::size_t slots = 0;
  for (const Timed& work : timed) {
    events.push_back({&work, false});
    if (sends(work, shape)) events.push_back({&work, true});
    slots = std::max(slots, static_cast<std::size_t>(2 * work.end) + 1);
  }
  std::vector<std::size_t> next(slots + 1, 0);
  for (const Event& event : events) ++next[slot(event) + 1];
  for (std::size_t i = 1; i < next.size(); ++i) next[i] += next[i - 1];
  std::vector<Event> sorted(events.size());
  for (const Event& event : events) sorted[next[slot(event)]++] = event;
  return sorted;
}

Schedule with_transfers(const std::vector<StageSchedule>& work, Shape shape, int micro_batches) {
  const std::vector<Timed> timed = Simulation(work, shape, micro_batches).run();
  const std::vector<Event> events = in_order(timed, shape);
  Schedule schedule(work.size());
  for (const Event& event : events) {
    if (event.transfer) {
      append_transfer(schedule, *event.work, shape);
    } else {
      schedule[static_cast<std::size_t>(event.work->stage)].push_back(event.work->action);
    }
  }
  return schedule;
}

}  // namespace

std::string_view action_name(ActionKind kind) {
  constexpr std::string_view kNames[] = {"forward",         "backward",           "backward input", "backward weight",
                                         "send activation", "receive activation", "send gradient",  "receive gradient"};
  return kNames[static_cast<std::size_t>(kind)];
}

Schedule make_schedule(ScheduleKind kind, int pp, int interleave, int micro_batches) {
  TRIREME_CHECK(pp >= 1 && interleave >= 1 && micro_batches >= 1, "pp {} interleave {} micro-batches {}", pp,
                interleave, micro_batches);
  std::vector<StageSchedule> work;
  for (int stage = 0; stage < pp; ++stage) {
    work.push_back(work_order(kind, pp, interleave, micro_batches, stage));
  }
  return with_transfers(work, {pp, interleave}, micro_batches);
}

int peak_in_flight(const StageSchedule& schedule) {
  const bool split = std::any_of(schedule.begin(), schedule.end(),
                                 [](const ChunkAction& action) { return action.kind == ActionKind::kBackwardWeight; });
  int current = 0, peak = 0;
  for (const ChunkAction& action : schedule) {
    if (!is_work(action.kind)) continue;
    if (action.kind == ActionKind::kForward) peak = std::max(peak, ++current);
    if (action.kind == (split ? ActionKind::kBackwardWeight : ActionKind::kBackward)) --current;
  }
  return peak;
}

}  // namespace trireme::plan
