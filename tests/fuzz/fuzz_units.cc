// Every reader of base/units.h over any text: it gives a value in its range, which is written and read back as it
// was, or a refusal with a sentence.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/units.h"

namespace trireme {
namespace {

template <class T>
void check_refusal(const Result<T>& result) {
  if (!result) TRIREME_CHECK(!result.failure().sentence().empty(), "a refusal without words");
}

void check_rate(const Result<double>& rate, std::string (*print)(double), Result<double> (*parse)(std::string_view)) {
  check_refusal(rate);
  if (!rate) return;
  TRIREME_CHECK(std::isfinite(*rate) && *rate >= 0, "{} is no rate", *rate);
  const std::string text = print(*rate);
  TRIREME_CHECK(parse(text).ok() && *parse(text) == *rate, "{:a} became \"{}\"", *rate, text);
}

void fuzz(std::string_view text) {
  const Result<double> count = parse_count(text);
  check_refusal(count);
  if (count) TRIREME_CHECK(std::isfinite(*count) && *count >= 0, "{} is no count", *count);
  check_rate(parse_bytes_per_second(text), bandwidth_text, parse_bytes_per_second);
  check_rate(parse_flops_per_second(text), flops_rate_text, parse_flops_per_second);
  const Result<Bytes> bytes = parse_bytes(text);
  check_refusal(bytes);
  if (bytes) {
    TRIREME_CHECK(bytes->count >= 0, "{} bytes", bytes->count);
    TRIREME_CHECK(parse_bytes(bytes_text(*bytes)).or_throw() == *bytes, "{} bytes", bytes->count);
    TRIREME_CHECK(!format_bytes(*bytes).empty() && !format_exact(bytes->count).empty(), "{}", bytes->count);
  }
  const Result<Seconds> seconds = parse_seconds(text);
  check_refusal(seconds);
  if (seconds) {
    TRIREME_CHECK(std::isfinite(seconds->count) && seconds->count >= 0, "{} s", seconds->count);
    TRIREME_CHECK(parse_seconds(duration_text(*seconds)).or_throw() == *seconds, "{:a} s", seconds->count);
    TRIREME_CHECK(!format_seconds(*seconds).empty(), "{}", seconds->count);
  }
}

}  // namespace
}  // namespace trireme

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  trireme::fuzz({reinterpret_cast<const char*>(data), size});
  return 0;
}
