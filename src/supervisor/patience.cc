#include "supervisor/patience.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace trireme::supervisor {
namespace {

using telemetry::Phase;

bool is_of_step(Phase phase) {
  return phase == Phase::kForward || phase == Phase::kBackward || phase == Phase::kReduce || phase == Phase::kOptimizer;
}

void check_length(const char* what, Seconds length) {
  TRIREME_CHECK(length.count >= 0 && std::isfinite(length.count), "{} of {} s", what, length.count);
}

}  // namespace

void Patience::Longest::add(double length) {
  ++count_;
  while (!kept_.empty() && kept_.back().length <= length) kept_.pop_back();
  kept_.push_back({.number = count_, .length = length});
  if (kept_.front().number + static_cast<std::int64_t>(kRemembered) <= count_) kept_.erase(kept_.begin());
}

Patience::Patience(PatiencePolicy policy) : policy_(policy) {
  TRIREME_CHECK(policy.start.count > 0, "start {} s", policy.start.count);
  TRIREME_CHECK(policy.floor.count > 0 && policy.floor <= policy.most, "floor {} s, most {} s", policy.floor.count,
                policy.most.count);
  TRIREME_CHECK(policy.factor >= 1, "factor {}", policy.factor);
}

void Patience::learn(Phase phase, Seconds gap) {
  check_length("a gap", gap);
  gaps_.at(static_cast<std::size_t>(phase)).add(gap.count);
}

void Patience::step_done(Seconds step) {
  check_length("a step", step);
  first_step_done_ = true;
  steps_.add(step.count);
}

void Patience::restart() { first_step_done_ = false; }

Seconds Patience::deadline(Phase phase) const {
  const Longest& gaps = gaps_.at(static_cast<std::size_t>(phase));
  const bool known = !gaps.empty() || (is_of_step(phase) && !steps_.empty());
  if (!first_step_done_ || !known) return policy_.start;
  const double longest = gaps.empty() ? steps_.value() : gaps.value();
  return Seconds{std::clamp(policy_.factor * longest, policy_.floor.count, policy_.most.count)};
}

}  // namespace trireme::supervisor
