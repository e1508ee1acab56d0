#include "base/units.h"

#include <array>
#include <charconv>
#include <cmath>
#include <span>

#include <fmt/format.h>

#include "base/check.h"

namespace trireme {
namespace {

struct UnitName {
  std::string_view name;
  double factor;
};

constexpr double kTwoPow10 = 1024.0;
constexpr double kDay = 86400.0;

constexpr std::array<UnitName, 13> kByteUnits{{{"", 1},
                                               {"B", 1},
                                               {"kB", 1e3},
                                               {"KB", 1e3},
                                               {"MB", 1e6},
                                               {"GB", 1e9},
                                               {"TB", 1e12},
                                               {"PB", 1e15},
                                               {"KiB", kTwoPow10},
                                               {"MiB", kTwoPow10* kTwoPow10},
                                               {"GiB", kTwoPow10* kTwoPow10* kTwoPow10},
                                               {"TiB", kTwoPow10* kTwoPow10* kTwoPow10* kTwoPow10},
                                               {"PiB", kTwoPow10* kTwoPow10* kTwoPow10* kTwoPow10* kTwoPow10}}};

constexpr std::array<UnitName, 5> kBitUnits{
    {{"kb", 1e3 / 8}, {"Mb", 1e6 / 8}, {"Gb", 1e9 / 8}, {"Tb", 1e12 / 8}, {"b", 1.0 / 8}}};

constexpr std::array<UnitName, 9> kCountUnits{
    {{"", 1}, {"K", 1e3}, {"k", 1e3}, {"M", 1e6}, {"m", 1e6}, {"B", 1e9}, {"b", 1e9}, {"T", 1e12}, {"t", 1e12}}};

constexpr std::array<UnitName, 4> kFlopsUnits{{{"FLOP/s", 1}, {"GFLOP/s", 1e9}, {"TFLOP/s", 1e12}, {"PFLOP/s", 1e15}}};

constexpr std::array<UnitName, 10> kTimeUnits{{{"ns", 1e-9},
                                               {"us", 1e-6},
                                               {"ms", 1e-3},
                                               {"s", 1},
                                               {"min", 60},
                                               {"m", 60},
                                               {"h", 3600},
                                               {"d", kDay},
                                               {"w", 7 * kDay},
                                               {"y", 365.25 * kDay}}};

const UnitName* find_unit(std::span<const UnitName> units, std::string_view name) {
  for (const UnitName& unit : units) {
    if (unit.name == name) return &unit;
  }
  return nullptr;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

struct Quantity {
  std::string_view digits;  // the number as written
  double number = 0;
  std::string_view unit;  // what follows it, without blanks
};

// "1.5 GB" -> 1.5, "GB". No sign, no separators: a quantity is never negative.
Result<Quantity> split_quantity(std::string_view text, const char* what, const char* example) {
  const std::string_view body = trimmed(text);
  const Failure refused{what, fmt::format("\"{}\"", text), "must be a number that is not negative, with its unit",
                        fmt::format("write it like {}", example)};
  if (body.empty() || !is_digit(body.front())) return refused;
  Quantity result;
  const auto [end, error] = std::from_chars(body.data(), body.data() + body.size(), result.number);
  if (error != std::errc() || !std::isfinite(result.number)) return refused;
  const auto length = static_cast<std::size_t>(end - body.data());
  result.digits = body.substr(0, length);
  result.unit = trimmed(body.substr(length));
  return result;
}

Failure unknown_unit(const char* what, std::string_view text, std::string_view unit, std::string_view legal) {
  const std::string shown = unit.empty() ? "no unit" : fmt::format("the unit \"{}\"", unit);
  return {what, fmt::format("\"{}\"", text), fmt::format("has {}", shown), fmt::format("legal units: {}", legal)};
}

constexpr std::string_view kByteUnitList = "B, KB, MB, GB, TB, PB (powers of 1000), KiB, MiB, GiB, TiB, PiB (of 1024)";

// A number times a unit of bytes, below 2^63. A whole number is exact; a fraction of a unit is the nearest byte, one
// of a byte is refused.
Result<Bytes> nearest_bytes(std::string_view text, const Quantity& quantity, double factor) {
  const auto refuse = [&](const char* rule) { return Failure{"bytes", fmt::format("\"{}\"", text), rule, ""}; };
  std::int64_t whole = 0;
  const char* end = quantity.digits.data() + quantity.digits.size();
  const auto [stop, error] = std::from_chars(quantity.digits.data(), end, whole);
  if (error == std::errc() && stop == end) {
    std::int64_t product = 0;
    if (__builtin_mul_overflow(whole, static_cast<std::int64_t>(factor), &product)) {
      return refuse("must be less than 2^63 bytes");
    }
    return Bytes{product};
  }
  const double product = quantity.number * factor;
  const double rounded = std::round(product);
  if (factor == 1 && product != rounded) return refuse("must be a whole number of bytes");
  if (rounded == 0 && product > 0) return refuse("is less than one byte");
  if (rounded >= 0x1p63) return refuse("must be less than 2^63 bytes");
  return Bytes{static_cast<std::int64_t>(rounded)};
}

// A number times its unit, which may leave the range of a double.
Result<double> product_of(std::string_view text, const char* what, const Quantity& quantity, const UnitName& unit) {
  const double product = quantity.number * unit.factor;
  if (std::isfinite(product)) return product;
  return Failure{what, fmt::format("\"{}\"", text), "is too large for a double", ""};
}

// The shortest "number unit" whose product is exactly the value, of equally short ones the last; with a unit of factor
// 1 there always is one.
std::string exact_text(double value, std::span<const UnitName> units, std::string_view blank, std::string_view suffix) {
  TRIREME_CHECK(std::isfinite(value) && value >= 0, "{} has no text with a unit", value);
  std::string best;
  for (const UnitName& unit : units) {
    const double number = value / unit.factor;
    if (number * unit.factor != value || unit.name.empty()) continue;
    std::string text = fmt::format("{}{}{}{}", number, blank, unit.name, suffix);
    if (best.empty() || text.size() <= best.size()) best = std::move(text);
  }
  return best;
}

// The largest scale whose value prints as at least 1 and, after rounding to `digits` decimals, below the next
// scale.
struct Scale {
  double factor;
  std::string_view unit;
};

std::string format_scaled(double value, std::span<const Scale> scales, int digits) {
  const double half_unit = 0.5 * std::pow(10.0, -digits);
  std::size_t chosen = 0;
  while (chosen + 1 < scales.size() &&
         std::abs(value) >= scales[chosen + 1].factor - half_unit * scales[chosen].factor) {
    ++chosen;
  }
  return fmt::format("{:.{}f} {}", value / scales[chosen].factor, digits, scales[chosen].unit);
}

}  // namespace

std::int64_t checked_add(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) {
    throw InternalError(fmt::format("64-bit overflow: {} + {}", a, b));
  }
  return sum;
}

std::int64_t checked_multiply(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) {
    throw InternalError(fmt::format("64-bit overflow: {} * {}", a, b));
  }
  return product;
}

std::int64_t divide_exact(std::int64_t a, std::int64_t b) {
  TRIREME_CHECK_NE(b, 0);
  TRIREME_CHECK(a % b == 0, "{} is not divisible by {}", a, b);
  return a / b;
}

Result<double> parse_count(std::string_view text) {
  const Result<Quantity> quantity = split_quantity(text, "count", "7B, 1.5M, 4096 or 7e9");
  if (!quantity.ok()) return quantity.failure();
  const UnitName* unit = find_unit(kCountUnits, quantity->unit);
  if (unit == nullptr) {
    return unknown_unit("count", text, quantity->unit, "K, M, B (1e9), T, or none");
  }
  return product_of(text, "count", *quantity, *unit);
}

Result<Bytes> parse_bytes(std::string_view text) {
  const Result<Quantity> quantity = split_quantity(text, "bytes", "80GB, 80GiB or 512B");
  if (!quantity.ok()) return quantity.failure();
  const UnitName* unit = find_unit(kByteUnits, quantity->unit);
  if (unit == nullptr) return unknown_unit("bytes", text, quantity->unit, kByteUnitList);
  return nearest_bytes(text, *quantity, unit->factor);
}

Result<double> parse_bytes_per_second(std::string_view text) {
  const Result<Quantity> quantity = split_quantity(text, "bandwidth", "200GB/s or 200Gb/s");
  if (!quantity.ok()) return quantity.failure();
  const std::string_view unit_text = quantity->unit;
  const UnitName* unit = nullptr;
  if (unit_text.size() > 2 && unit_text.ends_with("/s")) {
    const std::string_view amount = unit_text.substr(0, unit_text.size() - 2);
    unit = find_unit(kByteUnits, amount);
    if (unit == nullptr) unit = find_unit(kBitUnits, amount);
  }
  if (unit == nullptr) {
    return unknown_unit("bandwidth", text, unit_text, "GB/s, GiB/s (bytes), Gb/s (bits), and so with K, M, T");
  }
  return product_of(text, "bandwidth", *quantity, *unit);
}

Result<double> parse_flops_per_second(std::string_view text) {
  constexpr const char* kWhat = "rate of operations";
  const Result<Quantity> quantity = split_quantity(text, kWhat, "989.4 TFLOP/s");
  if (!quantity.ok()) return quantity.failure();
  const UnitName* unit = find_unit(kFlopsUnits, quantity->unit);
  if (unit == nullptr) return unknown_unit(kWhat, text, quantity->unit, "FLOP/s, GFLOP/s, TFLOP/s, PFLOP/s");
  return product_of(text, kWhat, *quantity, *unit);
}

Result<Seconds> parse_seconds(std::string_view text) {
  const Result<Quantity> quantity = split_quantity(text, "duration", "3min, 50h, 1.5s or 20ms");
  if (!quantity.ok()) return quantity.failure();
  const UnitName* unit = find_unit(kTimeUnits, quantity->unit);
  if (unit == nullptr) {
    return unknown_unit("duration", text, quantity->unit, "ns, us, ms, s, m or min, h, d, w, y");
  }
  const Result<double> product = product_of(text, "duration", *quantity, *unit);
  if (!product.ok()) return product.failure();
  return Seconds{*product};
}

std::string bytes_text(Bytes bytes) {
  TRIREME_CHECK(bytes.count >= 0, "{} bytes have no text", bytes.count);
  std::string best = fmt::format("{}B", bytes.count);
  for (const UnitName& unit : kByteUnits) {
    const auto factor = static_cast<std::int64_t>(unit.factor);
    if (unit.name.empty() || unit.name == "kB" || bytes.count == 0 || bytes.count % factor != 0) continue;
    std::string text = fmt::format("{}{}", bytes.count / factor, unit.name);
    if (text.size() < best.size()) best = std::move(text);
  }
  return best;
}

std::string bandwidth_text(double bytes_per_s) {
  constexpr std::size_t kDecimal = 8;  // the first of kByteUnits, up to PB
  return exact_text(bytes_per_s, std::span(kByteUnits).first(kDecimal), " ", "/s");
}

std::string flops_rate_text(double flops_per_s) { return exact_text(flops_per_s, kFlopsUnits, " ", ""); }

std::string duration_text(Seconds seconds) { return exact_text(seconds.count, kTimeUnits, "", ""); }

std::string format_bytes(Bytes bytes) {
  if (std::abs(static_cast<double>(bytes.count)) < 1e3) return fmt::format("{} B", bytes.count);
  constexpr std::array<Scale, 6> kScales{
      {{1e3, "KB"}, {1e6, "MB"}, {1e9, "GB"}, {1e12, "TB"}, {1e15, "PB"}, {1e18, "EB"}}};
  return format_scaled(static_cast<double>(bytes.count), kScales, 2);
}

std::string format_exact(std::int64_t value) {
  std::string digits = std::to_string(value);
  const std::ptrdiff_t first = value < 0 ? 1 : 0;
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > first; at -= 3) {
    digits.insert(static_cast<std::size_t>(at), ",");
  }
  return digits;
}

std::string format_seconds(Seconds seconds) {
  const double s = seconds.count;
  if (!std::isfinite(s)) return fmt::format("{} s", s);
  const double size = std::abs(s);
  if (size == 0.0) return "0 s";
  if (size < 0.99995) {
    constexpr std::array<Scale, 3> kScales{{{1e-9, "ns"}, {1e-6, "us"}, {1e-3, "ms"}}};
    return format_scaled(s, kScales, 1);
  }
  if (size < 120) return fmt::format("{:.2f} s", s);
  if (size < 3 * 3600) return fmt::format("{:.1f} min", s / 60);
  if (size < 3 * kDay) return fmt::format("{:.2f} h", s / 3600);
  if (size < 730 * kDay) return fmt::format("{:.1f} d", s / kDay);
  return fmt::format("{:.2f} y", s / (365.25 * kDay));
}

std::string format_flops_rate(double flops_per_s) {
  if (!std::isfinite(flops_per_s)) return fmt::format("{} FLOP/s", flops_per_s);
  constexpr std::array<Scale, 7> kScales{{{1, "FLOP/s"},
                                          {1e3, "KFLOP/s"},
                                          {1e6, "MFLOP/s"},
                                          {1e9, "GFLOP/s"},
                                          {1e12, "TFLOP/s"},
                                          {1e15, "PFLOP/s"},
                                          {1e18, "EFLOP/s"}}};
  return format_scaled(flops_per_s, kScales, 1);
}

std::string format_hex(double value) { return fmt::format("{:a}", value); }

}  // namespace trireme
