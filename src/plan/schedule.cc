#include "plan/schedule.h"

#include <algorithm>

#include "base/check.h"
#include "plan/timed_schedule.h"

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

// Transfers are placed in one global order of work and transfers, each stage keeping its part of it: at the moment when
// the sender has finished. Since a transfer is one event of that order for both its ends, blocking rendezvous can
// follow the order, and cannot deadlock.
struct Event {
  const TimedAction* work = nullptr;
  bool transfer = false;
};

void append_transfer(Schedule& schedule, const TimedAction& work, Shape shape) {
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

bool sends(const TimedAction& work, Shape shape) {
  const int at = shape.virtual_stage(work.stage, work.action.chunk);
  if (work.action.kind == ActionKind::kForward) return at != shape.last();
  return work.action.kind != ActionKind::kBackwardWeight && at != 0;
}

// Ordered by time; at the same time transfers come before work; then as `timed` has them. Times are small integers, so
// the sort counts.
std::vector<Event> in_order(const std::vector<TimedAction>& timed, Shape shape) {
  const auto slot = [](const Event& event) {
    return event.transfer ? 2 * static_cast<std::size_t>(event.work->end)
                          : 2 * static_cast<std::size_t>(event.work->start) + 1;
  };
  std::vector<Event> events;
  std::size_t slots = 0;
  for (const TimedAction& work : timed) {
    events.push_back({&work, false});
    if (sends(work, shape)) events.push_back({&work, true});
    slots = std::max(slots, 2 * static_cast<std::size_t>(work.end) + 1);
  }
  std::vector<std::size_t> next(slots + 1, 0);
  for (const Event& event : events) ++next[slot(event) + 1];
  for (std::size_t i = 1; i < next.size(); ++i) next[i] += next[i - 1];
  std::vector<Event> sorted(events.size());
  for (const Event& event : events) sorted[next[slot(event)]++] = event;
  return sorted;
}

Schedule with_transfers(ScheduleKind kind, Shape shape, int micro_batches) {
  // A forward and each half of a backward take one unit of time; transfers take none.
  const std::vector<ChunkTimes> units(static_cast<std::size_t>(shape.last() + 1),
                                      {.forward = 1, .backward_input = 1, .backward_weight = 1});
  const std::vector<TimedAction> timed = timed_schedule(kind, shape.pp, shape.interleave, micro_batches, units);
  const std::vector<Event> events = in_order(timed, shape);
  Schedule schedule(static_cast<std::size_t>(shape.pp));
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
  return with_transfers(kind, {pp, interleave}, micro_batches);
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
