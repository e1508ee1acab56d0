#include "support/pairwise.h"

#include <array>
#include <set>

namespace trireme::testing {
namespace {

using Row = std::vector<int>;
using Pair = std::array<int, 4>;  // factor, value, factor, value

std::set<Pair> pairs_of(const Row& row) {
  std::set<Pair> pairs;
  for (int a = 0; a < std::ssize(row); ++a) {
    for (int b = a + 1; b < std::ssize(row); ++b) {
      pairs.insert({a, row[static_cast<std::size_t>(a)], b, row[static_cast<std::size_t>(b)]});
    }
  }
  return pairs;
}

}  // namespace

std::vector<Row> all_rows(const std::vector<int>& factors, const std::function<bool(const Row&)>& legal) {
  std::vector<Row> rows;
  Row row(factors.size());
  while (true) {
    if (legal(row)) rows.push_back(row);
    std::size_t digit = 0;
    while (digit < row.size() && ++row[digit] == factors[digit]) row[digit++] = 0;
    if (digit == row.size()) return rows;
  }
}

std::vector<Row> pairwise_rows(const std::vector<int>& factors, const std::function<bool(const Row&)>& legal) {
  const std::vector<Row> candidates = all_rows(factors, legal);
  std::set<Pair> missing;
  for (const Row& row : candidates) missing.merge(pairs_of(row));
  std::vector<Row> chosen;
  while (!missing.empty()) {
    const Row* best = nullptr;
    std::ptrdiff_t most = 0;
    for (const Row& row : candidates) {
      std::ptrdiff_t covered = 0;
      for (const Pair& pair : pairs_of(row)) covered += missing.count(pair) > 0 ? 1 : 0;
      if (covered <= most) continue;
      best = &row;
      most = covered;
    }
    for (const Pair& pair : pairs_of(*best)) missing.erase(pair);
    chosen.push_back(*best);
  }
  return chosen;
}

}  // namespace trireme::testing
