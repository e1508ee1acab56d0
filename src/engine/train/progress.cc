#include "engine/train/progress.h"

#include <algorithm>

#include <fmt/format.h>

namespace trireme::train {
namespace {

std::string thousands(double x) { return x >= 1000.0 ? fmt::format("{:.1f}k", x / 1000.0) : fmt::format("{:.0f}", x); }

}  // namespace

std::string format_clock(double seconds) {
  const auto whole = static_cast<std::int64_t>(seconds + 0.5);
  const std::int64_t hours = whole / 3600, minutes = whole / 60 % 60, rest = whole % 60;
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, minutes, rest);
  return fmt::format("{}:{:02}", minutes, rest);
}

Fields progress_fields(const telemetry::StepRecord& r, std::int64_t total_steps, double remaining_s) {
  Fields fields{fmt::format("step {}/{}", r.step, total_steps), fmt::format("loss {:.4f}", r.loss)};
  if (r.validation_loss) fields.push_back(fmt::format("validation {:.4f}", *r.validation_loss));
  double exposed_s = 0.0;
  for (const telemetry::AxisCommunication& axis : r.communication) exposed_s += axis.exposed_s;
  if (!r.communication.empty()) fields.push_back(fmt::format("waits {:.0f}%", 100.0 * exposed_s / r.step_s));
  fields.push_back(thousands(r.tokens_per_s) + " tok/s");
  fields.push_back("MFU " + (r.mfu ? fmt::format("{:.1f}%", 100.0 * *r.mfu) : "not known"));
  fields.push_back("ETA " + format_clock(remaining_s));
  fields.push_back(format_bytes(Bytes{r.resident_bytes}));
  return fields;
}

Progress::Progress(Screen* screen, std::int64_t total_steps, std::int64_t interval, Seconds now)
    : screen_(screen), total_steps_(total_steps), interval_(interval), begun_(now), shown_(now) {}

void Progress::step(const telemetry::StepRecord& record, Seconds now) {
  if (screen_ == nullptr) return;
  ++steps_;
  smoothed_step_s_ = smoothed_step_s_ == 0.0 ? record.step_s : 0.9 * smoothed_step_s_ + 0.1 * record.step_s;
  const double remaining_s = smoothed_step_s_ * static_cast<double>(total_steps_ - record.step);
  last_ = progress_fields(record, total_steps_, remaining_s);
  const bool terminal = screen_->is_terminal();
  if (record.validation_loss || record.step == total_steps_ || (!terminal && line_due(record.step, now))) {
    shown_ = now;
    return finish();
  }
  if (!terminal || (steps_ > 1 && now.count - shown_.count < kBetweenStatus.count)) return;
  shown_ = now;
  screen_->status(last_);
}

bool Progress::line_due(std::int64_t step, Seconds now) const {
  if (interval_ > 0) return steps_ == 1 || step % interval_ == 0;
  constexpr double kPart = 20;
  const double pause = std::clamp((now.count - begun_.count) / kPart, kShortest.count, kLongest.count);
  return steps_ <= kFirst || now.count - shown_.count >= pause;
}

void Progress::finish() {
  if (screen_ == nullptr || last_.empty()) return;
  screen_->keep(last_);
  last_.clear();
}

}  // namespace trireme::train
