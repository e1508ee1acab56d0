#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "plan/schedule.h"
#include "plan/schedule_order.h"

namespace trireme::plan {
namespace {

std::string text(int stage, const ChunkAction& action) {
  return fmt::format("stage {}: {} of micro-batch {}, chunk {}", stage, action_name(action.kind), action.micro_batch,
                     action.chunk);
}

class Checker {
 public:
  Checker(const Schedule& schedule, ScheduleKind kind, int pp, int interleave, int micro_batches)
      : schedule_(schedule), kind_(kind), pp_(pp), interleave_(interleave), micro_batches_(micro_batches) {}

  std::string run() {
    if (static_cast<int>(schedule_.size()) != pp_) return fmt::format("{} stages, not {}", schedule_.size(), pp_);
    for (auto check : {&Checker::each_once, &Checker::ascending, &Checker::in_flight, &Checker::runs_to_the_end}) {
      if (std::string fault = (this->*check)(); !fault.empty()) return fault;
    }
    return "";
  }

 private:
  bool split() const { return kind_ == ScheduleKind::kZeroBubbleH1; }
  int virtual_stage(int stage, int chunk) const { return chunk * pp_ + stage; }
  int last() const { return pp_ * interleave_ - 1; }

  // The actions that a chunk must have for every micro-batch.
  std::set<ActionKind> expected(int stage, int chunk) const {
    const int at = virtual_stage(stage, chunk);
    std::set<ActionKind> kinds{ActionKind::kForward};
    if (split()) {
      kinds.insert({ActionKind::kBackwardInput, ActionKind::kBackwardWeight});
    } else {
      kinds.insert(ActionKind::kBackward);
    }
    if (pp_ == 1) return kinds;
    if (at != last()) kinds.insert({ActionKind::kSendActivation, ActionKind::kReceiveGradient});
    if (at != 0) kinds.insert({ActionKind::kReceiveActivation, ActionKind::kSendGradient});
    return kinds;
  }

  // Stage at the other end of a chunk's transfer.
  int peer_of(int stage, const ChunkAction& action) const {
    const int at = virtual_stage(stage, action.chunk);
    switch (action.kind) {
      case ActionKind::kSendActivation:
      case ActionKind::kReceiveGradient:
        return (at + 1) % pp_;
      case ActionKind::kReceiveActivation:
      case ActionKind::kSendGradient:
        return (at - 1) % pp_;
      default:
        return -1;
    }
  }

  std::string each_once() {
    for (int stage = 0; stage < pp_; ++stage) {
      std::map<std::tuple<ActionKind, int, int>, int> seen;
      for (const ChunkAction& action : schedule_[static_cast<std::size_t>(stage)]) {
        const bool in_range = action.chunk >= 0 && action.chunk < interleave_ && action.micro_batch >= 0 &&
                              action.micro_batch < micro_batches_;
        if (!in_range || expected(stage, action.chunk).count(action.kind) == 0)
          return text(stage, action) + " has no place here";
        if (action.peer != peer_of(stage, action))
          return text(stage, action) + fmt::format(" names peer {}", action.peer);
        if (++seen[{action.kind, action.chunk, action.micro_batch}] > 1) return text(stage, action) + " comes twice";
      }
      std::size_t wanted = 0;
      for (int chunk = 0; chunk < interleave_; ++chunk) wanted += expected(stage, chunk).size();
      if (seen.size() != wanted * static_cast<std::size_t>(micro_batches_)) {
        return fmt::format("stage {}: {} actions, not {}", stage, seen.size(),
                           wanted * static_cast<std::size_t>(micro_batches_));
      }
    }
    return "";
  }

  // Every accumulation into a chunk's gradient comes in ascending order of micro-batches.
  std::string ascending() {
    for (int stage = 0; stage < pp_; ++stage) {
      std::map<std::pair<ActionKind, int>, int> latest;
      for (const ChunkAction& action : schedule_[static_cast<std::size_t>(stage)]) {
        const bool accumulates = action.kind == ActionKind::kBackward || action.kind == ActionKind::kBackwardInput ||
                                 action.kind == ActionKind::kBackwardWeight;
        if (!accumulates) continue;
        int& before = latest.try_emplace({action.kind, action.chunk}, -1).first->second;
        if (action.micro_batch <= before)
          return text(stage, action) + fmt::format(" comes after micro-batch {}", before);
        before = action.micro_batch;
      }
    }
    return "";
  }

  std::string in_flight() {
    for (int stage = 0; stage < pp_; ++stage) {
      const int peak = peak_in_flight(schedule_[static_cast<std::size_t>(stage)]);
      const int bound = in_flight_bound(kind_, pp_, interleave_, micro_batches_, stage);
      if (peak > bound)
        return fmt::format("stage {}: {} micro-batch chunks in flight, at most {} are allowed", stage, peak, bound);
    }
    return "";
  }

  // Runs all stages; a transfer happens only when both ends have come to it.
  std::string runs_to_the_end() {
    next_.assign(schedule_.size(), 0);
    done_.clear();
    for (bool moved = true; moved;) {
      moved = false;
      for (int stage = 0; stage < pp_; ++stage) {
        while (!at_end(stage)) {
          const ChunkAction& action = current(stage);
          if (action.peer >= 0) {
            if (!meets(stage, action)) break;
            if (!input_there(sender(stage, action), current(sender(stage, action)))) {
              return text(stage, action) + " transfers what has not been made";
            }
            const int peer = action.peer;
            done_.insert(mark(stage, action));
            done_.insert(mark(peer, current(peer)));
            ++next_[static_cast<std::size_t>(stage)];
            ++next_[static_cast<std::size_t>(peer)];
          } else {
            if (!input_there(stage, action)) return text(stage, action) + " comes before what it needs";
            done_.insert(mark(stage, action));
            ++next_[static_cast<std::size_t>(stage)];
          }
          moved = true;
        }
      }
    }
    for (int stage = 0; stage < pp_; ++stage) {
      if (!at_end(stage)) return "deadlock at " + text(stage, current(stage));
    }
    return "";
  }

  using Mark = std::tuple<int, ActionKind, int, int>;
  static Mark mark(int stage, const ChunkAction& action) {
    return {stage, action.kind, action.chunk, action.micro_batch};
  }
  bool at_end(int stage) const {
    return next_[static_cast<std::size_t>(stage)] >= schedule_[static_cast<std::size_t>(stage)].size();
  }
  const ChunkAction& current(int stage) const {
    return schedule_[static_cast<std::size_t>(stage)][next_[static_cast<std::size_t>(stage)]];
  }
  static bool is_send(ActionKind kind) {
    return kind == ActionKind::kSendActivation || kind == ActionKind::kSendGradient;
  }
  static int sender(int stage, const ChunkAction& action) { return is_send(action.kind) ? stage : action.peer; }

  // The peer stands at the other end of the same transfer.
  bool meets(int stage, const ChunkAction& action) const {
    if (at_end(action.peer)) return false;
    const ChunkAction& other = current(action.peer);
    const bool activation = action.kind == ActionKind::kSendActivation || action.kind == ActionKind::kReceiveActivation;
    const bool other_activation =
        other.kind == ActionKind::kSendActivation || other.kind == ActionKind::kReceiveActivation;
    if (other.peer != stage || activation != other_activation || is_send(action.kind) == is_send(other.kind))
      return false;
    const bool sends = is_send(action.kind);
    const int from = sends ? virtual_stage(stage, action.chunk) : virtual_stage(action.peer, other.chunk);
    const int to = sends ? virtual_stage(action.peer, other.chunk) : virtual_stage(stage, action.chunk);
    return action.micro_batch == other.micro_batch && to == from + (activation ? 1 : -1);
  }

  bool has(int stage, ActionKind kind, const ChunkAction& of) const {
    return done_.count({stage, kind, of.chunk, of.micro_batch}) > 0;
  }
  bool input_there(int stage, const ChunkAction& action) const {
    const int at = virtual_stage(stage, action.chunk);
    switch (action.kind) {
      case ActionKind::kForward:
        return at == 0 || has(stage, ActionKind::kReceiveActivation, action);
      case ActionKind::kBackward:
      case ActionKind::kBackwardInput:
        return has(stage, ActionKind::kForward, action) &&
               (at == last() || has(stage, ActionKind::kReceiveGradient, action));
      case ActionKind::kBackwardWeight:
        return has(stage, ActionKind::kBackwardInput, action);
      case ActionKind::kSendActivation:
        return has(stage, ActionKind::kForward, action);
      case ActionKind::kSendGradient:
        return has(stage, split() ? ActionKind::kBackwardInput : ActionKind::kBackward, action);
      default:
        return true;
    }
  }

  const Schedule& schedule_;
  ScheduleKind kind_;
  int pp_;
  int interleave_;
  int micro_batches_;
  std::vector<std::size_t> next_;
  std::set<Mark> done_;
};

}  // namespace

std::string check_schedule(const Schedule& schedule, ScheduleKind kind, int pp, int interleave, int micro_batches) {
  return Checker(schedule, kind, pp, interleave, micro_batches).run();
}

}  // namespace trireme::plan
