#include "cli/times_apart.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/units.h"

namespace trireme::cli {
namespace {

constexpr int kMostDigits = 6;  // more than format_seconds shows

std::string with_digits(double seconds, int more) {
  const std::string text = format_seconds({seconds});
  const std::size_t blank = text.find(' '), point = text.find('.');
  if (more == 0 || point == std::string::npos) return text;
  const std::string unit = text.substr(blank + 1);
  const double factor = parse_seconds("1" + unit).or_throw().count;
  const auto digits = static_cast<int>(blank - point - 1);
  return fmt::format("{:.{}f} {}", seconds / factor, digits + more, unit);
}

bool same(double a, double b) {
  constexpr double kMillionth = 1e-6;
  return a == b || std::abs(a - b) <= kMillionth * std::max(std::abs(a), std::abs(b));
}

std::vector<std::string> all_with_digits(const std::vector<double>& seconds, int more) {
  std::vector<std::string> texts;
  for (double one : seconds) texts.push_back(with_digits(one, more));
  return texts;
}

}  // namespace

std::vector<std::string> times_apart(const std::vector<double>& seconds) {
  std::vector<std::string> texts;
  for (int more = 0; more <= kMostDigits; ++more) {
    texts = all_with_digits(seconds, more);
    bool apart = true;
    for (std::size_t i = 1; i < texts.size(); ++i) {
      apart = apart && (same(seconds[i - 1], seconds[i]) || texts[i - 1] != texts[i]);
    }
    if (apart) break;
  }
  for (std::size_t i = 1; i < texts.size(); ++i) {
    if (same(seconds[i - 1], seconds[i])) texts[i].insert(0, "=");
  }
  return texts;
}

std::vector<std::string> times_column(const std::vector<double>& seconds, std::size_t least) {
  std::vector<std::string> texts = times_apart(seconds);
  for (const std::string& text : texts) least = std::max(least, text.size());
  for (std::string& text : texts) text.insert(0, least - text.size(), ' ');
  return texts;
}

}  // namespace trireme::cli
