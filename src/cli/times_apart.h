#pragma once

// Times of a list, one below the other.

#include <string>
#include <vector>

namespace trireme::cli {

// As format_seconds has them, with as many digits more as tell every two neighbours apart; one that is the same as the
// one above, to a millionth, begins with '='.
std::vector<std::string> times_apart(const std::vector<double>& seconds);
// Right-aligned to the widest, and to `least` letters.
std::vector<std::string> times_column(const std::vector<double>& seconds, std::size_t least);

}  // namespace trireme::cli
