#pragma once

// Quantities with types: Bytes (exact, overflow-checked), Flops and Seconds, and how people write them.
//   "7B" = 7e9 (a count)   "80GB" = 80e9 bytes   "80GiB" = 80 * 2^30   "200GB/s"   "200Gb/s" = 25e9 bytes/s
//   "989.4 TFLOP/s"   "3min" or "3m", "50h", "2d", "3w", "3y" (365.25 days), "1.5s", "20ms"

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"

namespace trireme {

// Integer arithmetic that throws InternalError on overflow.
std::int64_t checked_add(std::int64_t a, std::int64_t b);
std::int64_t checked_multiply(std::int64_t a, std::int64_t b);

inline std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
inline std::int64_t round_up(std::int64_t a, std::int64_t multiple) { return divide_up(a, multiple) * multiple; }
// a / b where b must divide a (InternalError otherwise).
std::int64_t divide_exact(std::int64_t a, std::int64_t b);

// A number of bytes, never negative in a ledger but signed so that differences are plain.
struct Bytes {
  std::int64_t count = 0;
  friend auto operator<=>(const Bytes&, const Bytes&) = default;
  friend Bytes operator+(Bytes a, Bytes b) { return {checked_add(a.count, b.count)}; }
  friend Bytes operator-(Bytes a, Bytes b) { return {checked_add(a.count, -b.count)}; }
  friend Bytes operator*(Bytes a, std::int64_t n) { return {checked_multiply(a.count, n)}; }
  Bytes& operator+=(Bytes b) { return *this = *this + b; }
  Bytes& operator-=(Bytes b) { return *this = *this - b; }
};

// The one rounding of allocations, shared by plan/ (which predicts) and the arena (which allocates).
inline constexpr std::int64_t kAllocationAlignment = 64;
inline Bytes allocation_size(Bytes asked) { return {round_up(asked.count, kAllocationAlignment)}; }

struct Flops {
  double count = 0;
};
struct Seconds {
  double count = 0;
  friend auto operator<=>(const Seconds&, const Seconds&) = default;
};

// Text to value. The Failure names the text, the rule and the legal units.
Result<double> parse_count(std::string_view text);             // "7B", "1.5M", "4096", "7e9"
Result<Bytes> parse_bytes(std::string_view text);              // "80GB", "80GiB", "14 GB", "512" (bytes)
Result<double> parse_bytes_per_second(std::string_view text);  // "200GB/s", "200Gb/s"
Result<double> parse_flops_per_second(std::string_view text);  // "989.4 TFLOP/s"
Result<Seconds> parse_seconds(std::string_view text);

// Value to text that the parser above reads back as the very same value, in the unit that makes it shortest. The value
// is finite and not negative (CHECK).
std::string bytes_text(Bytes bytes);              // "80GB", "80GiB"
std::string bandwidth_text(double bytes_per_s);   // "3.35 TB/s"
std::string flops_rate_text(double flops_per_s);  // "989.4 TFLOP/s"
std::string duration_text(Seconds seconds);       // "8us"

// Value to text, for people. Bytes: decimal with two digits ("112.00 GB"); exact: with separators ("1,024 bytes").
std::string format_bytes(Bytes bytes);
std::string format_exact(std::int64_t value);       // 8,030,261,248
std::string format_seconds(Seconds seconds);        // "134.2 min", "6.57 h", "122.5 ms"
std::string format_flops_rate(double flops_per_s);  // "241.0 GFLOP/s"
// printf's %a: the hex float that logs and tests compare.
std::string format_hex(double value);

}  // namespace trireme
