#pragma once

// Degrees that divide a number, and how a refusal names the legal ones next to what was asked.

#include <algorithm>
#include <string>
#include <vector>

namespace trireme {

// Ascending; n >= 1.
template <class Integer>
std::vector<Integer> divisors(Integer n) {
  std::vector<Integer> all;
  for (Integer d = 1; d <= n / d; ++d) {
    if (n % d != 0) continue;
    all.push_back(d);
    if (d != n / d) all.push_back(n / d);
  }
  std::ranges::sort(all);
  return all;
}

// Of `legal` (ascending), the nearest below and above `asked`: "2, 4".
template <class Integer>
std::string nearest_of(const std::vector<Integer>& legal, Integer asked) {
  const auto above = std::ranges::lower_bound(legal, asked);
  std::string text;
  if (above != legal.begin()) text = std::to_string(*(above - 1));
  if (above != legal.end()) text += (text.empty() ? "" : ", ") + std::to_string(*above);
  return text;
}

}  // namespace trireme
