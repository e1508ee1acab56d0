#include "engine/train/save_schedule.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "base/check.h"

namespace trireme::train {
namespace {

constexpr const char* kOption = "checkpoint.interval";
constexpr std::size_t kRecentSteps = 32;
constexpr double kLeastNews = 0.05;
// A save that is due so near the run's end may as well not come: step times are noisy.
constexpr double kOfTheRest = 0.8;
// What a clock may fail to see; the formulas need a positive cost.
constexpr double kLeastStall = 1e-9;
constexpr double kMostSteps = 1e15;  // exact in a double, and never reached

Failure refuse(std::string_view text, std::string rule, std::string nearest) {
  return {kOption, fmt::format("\"{}\"", text), std::move(rule), std::move(nearest)};
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// A number without a unit that is no legal number of steps; signed, so that -3 has its own refusal.
Failure refuse_number(std::string_view text, double number) {
  if (number < 1) return refuse(text, "steps between saves are a whole number from 1", "1, auto, none");
  if (number > kMostSteps) {
    return refuse(text, fmt::format("steps between saves are at most {}", static_cast<std::int64_t>(kMostSteps)),
                  "none");
  }
  const auto below = static_cast<std::int64_t>(number);
  if (static_cast<double>(below) == number) {
    return refuse(text, "steps between saves are written in digits", fmt::format("{}", below));
  }
  return refuse(text, "steps between saves are a whole number, and a time has its unit",
                fmt::format("{}, {}, {}min", below, below + 1, text));
}

Result<SaveInterval> parse_time(std::string_view text) {
  const Result<Seconds> time = parse_seconds(text);
  if (!time.ok()) {
    Failure failure = time.failure();
    failure.option = kOption;
    return failure;
  }
  if (time->count <= 0) return refuse(text, "the time between saves must be more than 0", "1s, auto, none");
  return SaveInterval{.kind = SaveInterval::Kind::kTime, .time = *time};
}

double clamped_steps(double steps) { return std::clamp(steps, 1.0, kMostSteps); }

void check_duration(const char* what, Seconds duration) {
  TRIREME_CHECK(duration.count >= 0 && std::isfinite(duration.count), "{} of {} s", what, duration.count);
}

std::string percent(double fraction) { return fmt::format("{:.2f} %", 100 * fraction); }

}  // namespace

Result<SaveInterval> parse_save_interval(std::string_view text) {
  using Kind = SaveInterval::Kind;
  if (text == "auto") return SaveInterval{.kind = Kind::kAuto};
  if (text == "none") return SaveInterval{.kind = Kind::kNone};
  const char* end = text.data() + text.size();
  std::int64_t steps = 0;
  const auto [whole_end, whole_error] = std::from_chars(text.data(), end, steps);
  if (whole_error == std::errc() && whole_end == end && steps >= 1 && static_cast<double>(steps) <= kMostSteps) {
    return SaveInterval{.kind = Kind::kSteps, .steps = steps};
  }
  double number = 0;
  const auto [number_end, number_error] = std::from_chars(text.data(), end, number);
  if (number_error == std::errc() && number_end == end && std::isfinite(number)) return refuse_number(text, number);
  if (!text.empty() && is_digit(text.front())) return parse_time(text);
  return refuse(text, "must be auto, none, a number of steps or a time", "auto, none, 200, 30min");
}

std::string to_text(const SaveInterval& interval) {
  switch (interval.kind) {
    case SaveInterval::Kind::kNone:
      return "none";
    case SaveInterval::Kind::kAuto:
      return "auto";
    case SaveInterval::Kind::kSteps:
      return fmt::format("{}", interval.steps);
    case SaveInterval::Kind::kTime:
      return duration_text(interval.time);
  }
  TRIREME_CHECK(false, "kind {}", static_cast<int>(interval.kind));
  return {};
}

SaveSchedule::SaveSchedule(const SavePolicy& policy, std::int64_t first_step)
    : policy_(policy), last_save_(first_step), last_step_(first_step) {
  TRIREME_CHECK_GE(first_step, 0);
  TRIREME_CHECK_GE(policy.failures, 0);
  check_duration("elapsed time", policy.elapsed);
  check_duration("an expected stall", policy.expected_stall);
  check_duration("an expected write", policy.expected_write);
  switch (policy.interval.kind) {
    case SaveInterval::Kind::kNone:
      break;
    case SaveInterval::Kind::kAuto:
      TRIREME_CHECK(policy.mtbf.count > 0 && std::isfinite(policy.mtbf.count), "mtbf {} s", policy.mtbf.count);
      break;
    case SaveInterval::Kind::kSteps:
      TRIREME_CHECK_GE(policy.interval.steps, 1);
      break;
    case SaveInterval::Kind::kTime:
      TRIREME_CHECK(policy.interval.time.count > 0, "saves every {} s", policy.interval.time.count);
      break;
  }
}

void SaveSchedule::step_done(std::int64_t step, Seconds duration) {
  TRIREME_CHECK_GT(step, last_step_);
  check_duration("a step", duration);
  last_step_ = step;
  policy_.elapsed.count += duration.count;
  if (!first_step_s_) {
    first_step_s_ = duration.count;
    return;
  }
  if (recent_steps_.size() < kRecentSteps) {
    recent_steps_.push_back(duration.count);
    return;
  }
  recent_steps_[next_recent_] = duration.count;
  next_recent_ = (next_recent_ + 1) % kRecentSteps;
}

bool SaveSchedule::due(std::int64_t step) const {
  const std::int64_t interval = interval_steps();
  if (interval == 0 || step <= last_save_) return false;
  if (policy_.interval.kind == SaveInterval::Kind::kSteps) return step % interval == 0;
  return step - last_save_ >= interval;
}

void SaveSchedule::saved(std::int64_t step, Seconds stall) {
  TRIREME_CHECK_GE(step, last_save_);
  check_duration("a stall", stall);
  last_save_ = step;
  stalled_ += stall.count;
  ++saves_;
  policy_.elapsed.count += stall.count;
}

void SaveSchedule::written(Seconds write) {
  check_duration("a write", write);
  policy_.expected_write = write;
  measured_ = true;
}

std::int64_t SaveSchedule::interval_steps() const {
  if (policy_.interval.kind == SaveInterval::Kind::kNone) return 0;
  if (policy_.interval.kind == SaveInterval::Kind::kSteps) return policy_.interval.steps;
  const Seconds step = step_time();
  if (step.count <= 0) return 0;
  if (policy_.interval.kind == SaveInterval::Kind::kAuto) return auto_steps(step);
  return std::llround(clamped_steps(policy_.interval.time.count / step.count));
}

Seconds SaveSchedule::mtbf() const {
  return {(policy_.mtbf.count + policy_.elapsed.count) / (1 + static_cast<double>(policy_.failures))};
}

std::string SaveSchedule::take_news() {
  if (policy_.interval.kind != SaveInterval::Kind::kAuto) return {};
  const std::int64_t steps = interval_steps();
  if (steps == 0 || recent_steps_.size() < kKnown) return {};
  const bool comes = due(last_step_);
  const Told now{steps, auto_interval(), policy_.elapsed, measured_, !comes && ends_before_a_save()};
  const bool comes_after_all = told_.at_end && comes;
  if (told_.steps > 0 && !comes_after_all) {
    if (steps == told_.steps || now.at_end) return {};
    if (std::abs(now.interval.count - told_.interval.count) < kLeastNews * told_.interval.count) return {};
    const bool first_measured = now.measured && !told_.measured;
    if (!first_measured && now.elapsed.count - told_.elapsed.count < kNewsEvery.count) return {};
  }
  told_ = now;
  return news_text(now.at_end);
}

std::string SaveSchedule::news_text(bool at_end) const {
  const std::int64_t steps = interval_steps();
  const auto time_of = [&](std::int64_t count) {
    return format_seconds({static_cast<double>(count) * step_time().count});
  };
  const plan::FailureModel model = failure_model();
  const std::string costs =
      fmt::format("a save stalls {} and is written in {}, a failure is expected every {}", format_seconds(stall()),
                  format_seconds(policy_.expected_write), format_seconds(model.mtbf));
  if (at_end) {
    return fmt::format("saves at its end, in about {}: in a longer run it would every {} ({})",
                       time_of(policy_.last_step - last_step_), time_of(steps), costs);
  }
  const plan::Waste waste = plan::waste_at(model, {static_cast<double>(steps) * step_time().count});
  const std::string how_often =
      steps == 1 ? fmt::format("step ({})", time_of(1)) : fmt::format("{} ({} steps)", time_of(steps), steps);
  return fmt::format("saves every {}: {}; expected waste {}: saving {}, lost work {}; Young's interval: {}", how_often,
                     costs, percent(waste.waste_fraction), percent(waste.checkpoint_fraction),
                     percent(waste.lost_fraction), format_seconds(plan::young_interval(model)));
}

bool SaveSchedule::ends_before_a_save() const {
  if (policy_.last_step == 0) return false;
  return static_cast<double>(interval_steps()) >= kOfTheRest * static_cast<double>(policy_.last_step - last_save_);
}

Seconds SaveSchedule::step_time() const {
  if (recent_steps_.empty()) return {first_step_s_.value_or(0)};
  std::vector<double> times = recent_steps_;
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  if (times.size() % 2 == 1) return {*middle};
  return {(*middle + *std::max_element(times.begin(), middle)) / 2};
}

Seconds SaveSchedule::stall() const {
  return saves_ == 0 ? policy_.expected_stall : Seconds{stalled_ / static_cast<double>(saves_)};
}

plan::FailureModel SaveSchedule::failure_model() const {
  return {.cost = {std::max(stall().count, kLeastStall)}, .mtbf = mtbf(), .restart = {0}};
}

Seconds SaveSchedule::auto_interval() const {
  return std::max(plan::daly_interval(failure_model()), policy_.expected_write);
}

std::int64_t SaveSchedule::auto_steps(Seconds step) const {
  const double wanted = plan::daly_interval(failure_model()).count / step.count;
  // Rounded up, but not for what a division leaves behind the last digit.
  const double least = std::ceil(policy_.expected_write.count / step.count * (1 - 1e-12));
  return std::llround(std::max(clamped_steps(wanted), clamped_steps(least)));
}

}  // namespace trireme::train
