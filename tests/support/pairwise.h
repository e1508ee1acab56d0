#pragma once

// Rows that together hold every pair of values of every two factors: far fewer than all combinations, and most faults
// are of one value or of two that meet.

#include <functional>
#include <vector>

namespace trireme::testing {

// factors: how many values each has. A row is one value's index a factor. Rows that `legal` refuses are left out, and
// so are pairs that are in no legal row. Greedy, the same every time.
std::vector<std::vector<int>> pairwise_rows(const std::vector<int>& factors,
                                            const std::function<bool(const std::vector<int>&)>& legal);
// All legal combinations.
std::vector<std::vector<int>> all_rows(const std::vector<int>& factors,
                                       const std::function<bool(const std::vector<int>&)>& legal);

}  // namespace trireme::testing
