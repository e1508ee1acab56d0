#include "engine/train/progress.h"

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

std::string progress_line(const telemetry::StepRecord& r, std::int64_t total_steps, double remaining_s) {
  std::string line = fmt::format("step {}/{}  loss {:.4f}", r.step, total_steps, r.loss);
  if (r.validation_loss) line += fmt::format("  validation {:.4f}", *r.validation_loss);
  double exposed_s = 0.0;
  for (const telemetry::AxisCommunication& axis : r.communication) exposed_s += axis.exposed_s;
  if (!r.communication.empty()) line += fmt::format("  waits {:.0f}%", 100.0 * exposed_s / r.step_s);
  const std::string mfu = r.mfu ? fmt::format("{:.1f}%", 100.0 * *r.mfu) : "not known";
  line += fmt::format("  {} tok/s  MFU {}  ETA {}  {}", thousands(r.tokens_per_s), mfu, format_clock(remaining_s),
                      format_bytes(Bytes{r.resident_bytes}));
  return line;
}

Progress::Progress(bool terminal, std::int64_t total_steps, std::int64_t interval,
                   std::function<void(const std::string&)> put)
    : terminal_(terminal), total_steps_(total_steps), interval_(interval), put_(std::move(put)) {}

void Progress::step(const telemetry::StepRecord& record) {
  smoothed_step_s_ = smoothed_step_s_ == 0.0 ? record.step_s : 0.9 * smoothed_step_s_ + 0.1 * record.step_s;
  const double remaining_s = smoothed_step_s_ * static_cast<double>(total_steps_ - record.step);
  const std::string line = progress_line(record, total_steps_, remaining_s);
  const bool keep = record.validation_loss.has_value() || record.step == total_steps_;
  if (!terminal_) {
    if (keep || record.step == 1 || record.step % interval_ == 0) put_(line + "\n");
    return;
  }
  const std::size_t blanks = width_ > line.size() ? width_ - line.size() : 0;
  put_("\r" + line + std::string(blanks, ' ') + (keep ? "\n" : ""));
  width_ = keep ? 0 : line.size();
}

void Progress::finish() {
  if (width_ > 0) put_("\n");
  width_ = 0;
}

}  // namespace trireme::train
