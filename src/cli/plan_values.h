#pragma once

// Values of the plan commands, from text. Each refusal names the flag, the value, the rule and what is legal.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/units.h"

namespace trireme::cli {

// A flag's text may be empty: it was not given. `example` completes "write it like --cost 3min".
Seconds positive_seconds(const std::string& flag, const std::string& text, const std::string& example);
// 0 where the flag was not given.
Seconds seconds_or_zero(const std::string& flag, const std::string& text);
double positive_bytes_per_second(const std::string& flag, const std::string& text, const std::string& example);
// A bare number below `least_bare` bytes is asked for its unit.
double positive_bytes(const std::string& flag, const std::string& text, const std::string& example, Bytes least_bare);
// Of one device.
double device_memory_bytes(const std::string& flag, const std::string& text);
// A whole number from 1 to `most`.
int whole_number(const std::string& flag, const std::string& text, const std::string& example, int most);

[[noreturn]] void refuse(const std::string& flag, const std::string& value, const std::string& rule,
                         const std::string& nearest);

std::string percent(double fraction, int decimals);  // "42.9 %"
Json finite_or_null(double value);                   // JSON has no infinity

}  // namespace trireme::cli
