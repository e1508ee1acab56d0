#include "cli/plan_values.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/missing_unit.h"

namespace trireme::cli {
namespace {

std::string how_to_write(const std::string& flag, const std::string& example) {
  // A value inside a list ("--why-not tp") is written with an equals sign.
  return fmt::format("write it like {}{}{}", flag, flag.find(' ') == std::string::npos ? " " : "=", example);
}

// The value of a parser that knows no flags, its refusal under the flag's name.
template <class Value>
Value named(const std::string& flag, const std::string& text, const std::string& example, const Result<Value>& parsed) {
  if (text.empty()) refuse(flag, "", "is needed", how_to_write(flag, example));
  if (parsed.ok()) return *parsed;
  Failure failure = parsed.failure();
  failure.option = flag;
  throw Error(failure);
}

// Beyond these no sum means anything, and infinities would print as if they did.
constexpr double kLeastSeconds = 1e-9;
constexpr double kMostSeconds = 1e12;
constexpr double kMostBytesPerSecond = 1e18;

Seconds bounded(const std::string& flag, const std::string& text, Seconds value) {
  if (value.count < kLeastSeconds) refuse(flag, text, "must be at least 1ns", "1ns");
  if (value.count > kMostSeconds) refuse(flag, text, "must be at most 30000y", "30000y");
  return value;
}

[[noreturn]] void refuse_zero(const std::string& flag, const std::string& text, const std::string& example) {
  refuse(flag, text, "must be more than 0", how_to_write(flag, example));
}

}  // namespace

void refuse(const std::string& flag, const std::string& value, const std::string& rule, const std::string& nearest) {
  throw Error(Failure{.option = flag, .value = value, .rule = rule, .nearest = nearest});
}

Seconds positive_seconds(const std::string& flag, const std::string& text, const std::string& example) {
  const Seconds value = named(flag, text, example, parse_seconds(text));
  if (value.count <= 0) refuse_zero(flag, text, example);
  return bounded(flag, text, value);
}

Seconds seconds_or_zero(const std::string& flag, const std::string& text) {
  if (text.empty()) return {};
  const Seconds value = named(flag, text, "", parse_seconds(text));
  return value.count == 0 ? value : bounded(flag, text, value);
}

double positive_bytes_per_second(const std::string& flag, const std::string& text, const std::string& example) {
  const double value = named(flag, text, example, parse_bytes_per_second(text));
  if (value <= 0) refuse_zero(flag, text, example);
  if (value < 1) refuse(flag, text, "must be at least 1B/s", "1B/s");
  if (value > kMostBytesPerSecond) refuse(flag, text, "must be at most 1000PB/s", "1000PB/s");
  return value;
}

double positive_bytes(const std::string& flag, const std::string& text, const std::string& example, Bytes least_bare) {
  const Bytes value = named(flag, text, example, parse_bytes_with_unit(text, least_bare));
  if (value.count <= 0) refuse_zero(flag, text, example);
  return static_cast<double>(value.count);
}

double device_memory_bytes(const std::string& flag, const std::string& text) {
  return positive_bytes(flag, text, "80GB", kLeastBareMemory);
}

int whole_number(const std::string& flag, const std::string& text, const std::string& example, int most) {
  if (text.empty()) refuse(flag, "", "is needed", how_to_write(flag, example));
  const Result<double> parsed = parse_count(text);
  const std::string rule = fmt::format("must be a whole number from 1 to {}", format_exact(most));
  if (!parsed.ok() || *parsed != std::floor(*parsed)) refuse(flag, text, rule, how_to_write(flag, example));
  if (*parsed < 1) refuse(flag, text, rule, "1");
  if (*parsed > most) refuse(flag, text, rule, fmt::format("{}", most));
  return static_cast<int>(*parsed);
}

std::string percent(double fraction, int decimals) { return fmt::format("{:.{}f} %", 100 * fraction, decimals); }

Json finite_or_null(double value) { return std::isfinite(value) ? Json(value) : Json(); }

}  // namespace trireme::cli
