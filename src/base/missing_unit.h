#pragma once

// Sizes and counts that people write without their unit: "80" of memory is 80GB, never 80 bytes.

#include <string_view>

#include "base/units.h"

namespace trireme {

// A device holds no less, nor does a rank: below it a bare number is one without its unit.
inline constexpr Bytes kLeastBareMemory{1'000'000};

// parse_bytes, but that a bare number above 0 and below `least_bare` is refused with what was probably meant.
Result<Bytes> parse_bytes_with_unit(std::string_view text, Bytes least_bare);
inline Result<Bytes> parse_memory(std::string_view text) { return parse_bytes_with_unit(text, kLeastBareMemory); }
// The same of parse_count.
Result<double> parse_count_with_unit(std::string_view text, double least_bare);

}  // namespace trireme
