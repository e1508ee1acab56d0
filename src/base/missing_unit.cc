#include "base/missing_unit.h"

#include <fmt/format.h>

namespace trireme {
namespace {

// The number without the blanks around it, where it has no unit; else nothing.
std::string_view bare_number(std::string_view text) {
  const std::size_t first = text.find_first_not_of(' '), last = text.find_last_not_of(' ');
  if (first == std::string_view::npos || text.find_first_not_of("0123456789.eE+-", first) <= last) return {};
  return text.substr(first, last - first + 1);
}

Failure no_unit(const char* what, std::string_view text, std::string meant) {
  return {.option = what, .value = fmt::format("\"{}\"", text), .rule = "has no unit", .nearest = std::move(meant)};
}

}  // namespace

Result<Bytes> parse_bytes_with_unit(std::string_view text, Bytes least_bare) {
  const std::string_view number = bare_number(text);
  const Result<double> bytes = number.empty() ? Result<double>(0.0) : parse_count(number);
  if (!bytes || *bytes <= 0 || *bytes >= static_cast<double>(least_bare.count)) return parse_bytes(text);
  constexpr double kMostGigabytes = 4000;  // more is what tools show in MiB
  const char unit = *bytes < kMostGigabytes ? 'G' : 'M';
  return no_unit("bytes", text, fmt::format("did you mean {0}{1}B, {0}{1}iB? bytes are written {0}B", number, unit));
}

Result<double> parse_count_with_unit(std::string_view text, double least_bare) {
  const std::string_view number = bare_number(text);
  Result<double> count = parse_count(text);
  if (number.empty() || !count || *count <= 0 || *count >= least_bare) return count;
  return no_unit("count", text, fmt::format("did you mean {0}B (billions), {0}M?", number));
}

}  // namespace trireme
