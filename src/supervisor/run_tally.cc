#include "supervisor/run_tally.h"

#include <algorithm>
#include <utility>

namespace trireme::supervisor {

void RunTally::account(double Recovery::*next, Seconds now) {
  open_->recovery.*open_->part += now.count - open_->mark.count;
  open_->mark = now;
  open_->part = next;
}

void RunTally::resumed(std::int64_t step, bool continues, Seconds now) {
  if (continues) durable_ = step;
  if (steps_.empty() || step < first_) {
    steps_.clear();
    useful_s_ = 0;
    first_ = step;
  }
  while (first_ + std::ssize(steps_) > step) {
    useful_s_ -= steps_.back();
    steps_.pop_back();
  }
  // Saved, though the word that they were done was lost with the start: they count, for as long as is known.
  while (first_ + std::ssize(steps_) < step) steps_.push_back(0);
  if (!open_) {
    furthest_ = std::max(furthest_, step);
    return;
  }
  open_->repeated = step >= open_->furthest;
  account(open_->repeated ? &Recovery::next_s : &Recovery::repeat_s, now);
  open_->recovery.steps_lost = std::max<std::int64_t>(0, open_->furthest - step);
}

std::optional<Recovery> RunTally::step_done(std::int64_t step, Seconds duration, Seconds now) {
  if (step != first_ + std::ssize(steps_) + 1) return std::nullopt;  // of a start that has not said where it began
  steps_.push_back(duration.count);
  useful_s_ += duration.count;
  furthest_ = std::max(furthest_, step);
  if (!open_) return std::nullopt;
  if (!open_->repeated) {
    open_->repeated = step >= open_->furthest;
    if (open_->repeated) account(&Recovery::next_s, now);
    return std::nullopt;
  }
  return finished(now);
}

void RunTally::saved(std::int64_t step) { durable_ = std::max(durable_, step); }

std::optional<Recovery> RunTally::finished(Seconds now) {
  if (!open_) return std::nullopt;
  account(&Recovery::end_s, now);
  return std::exchange(open_, std::nullopt)->recovery;
}

void RunTally::failed(const std::string& layout, Seconds now) {
  if (open_) {
    account(&Recovery::end_s, now);
    open_->furthest = std::max(open_->furthest, furthest_);
    open_->repeated = false;
    return;
  }
  open_ = Open{.recovery = {}, .mark = now, .furthest = furthest_};
  open_->recovery.layout_before = layout;
}

void RunTally::gone(Seconds now) {
  if (open_) account(&Recovery::wait_s, now);
}

void RunTally::launched(const std::string& layout, Seconds now) {
  if (!open_) return;
  account(&Recovery::launch_s, now);
  open_->recovery.layout_after = layout;
}

void RunTally::connected(Seconds now) {
  if (open_) account(&Recovery::load_s, now);
}

}  // namespace trireme::supervisor
