#pragma once

// How threads share a matrix product: each computes a rectangle of c by itself.

#include <algorithm>
#include <cstdint>

#include "base/units.h"
#include "engine/kernels/cpu/rows.h"

namespace trireme::kernels::cpu {

struct Share {
  std::int64_t row = 0, rows = 0;
  std::int64_t column = 0, columns = 0;
};

// c [m, n]. sums_rows: a is transposed, so that the contraction goes over rows of activations.
struct ShareOf {
  std::int64_t m = 0, n = 0;
  bool sums_rows = false;
};
struct Cut {
  std::int64_t rows = 1, columns = 1;  // parts
};

// Parts for `threads` threads, one for each.
//
// Threads read as little as they can of what others have written, since a line of another core's cache may come from
// another part of the chip (docs/speed.md). So a thread takes rows that it has written by itself, in loops over rows
// (rows.h), if they are enough to be worth packing b; and of a sum over all rows the part for which it has the least to
// pack.
inline Cut cut_of(const ShareOf& c, int threads) {
  constexpr std::int64_t kLeastRows = 256;
  Cut best{1, threads};
  for (std::int64_t rows = 2; rows <= threads; ++rows) {
    if (threads % rows != 0) continue;
    const Cut cut{rows, threads / rows};
    const bool better = c.sums_rows ? c.m / cut.rows + c.n / cut.columns < c.m / best.rows + c.n / best.columns
                                    : c.m / cut.rows >= kLeastRows;
    if (better) best = cut;
  }
  return best;
}

// Rows and columns that are not taken apart.
struct ShareUnit {
  std::int64_t rows = 1, columns = 1;
};

// function(share, member) for the shares of the team's members that are not empty.
template <class Function>
void for_shares(const ShareOf& c, const ShareUnit& unit, Team& team, const Function& function) {
  const Cut cut = cut_of(c, team.size());
  const std::int64_t row_units = divide_up(c.m, unit.rows), column_units = divide_up(c.n, unit.columns);
  parallel_for(team, team.size(), [&](std::int64_t member) {
    const std::int64_t i = member / cut.columns, j = member % cut.columns;
    Share share{.row = row_units * i / cut.rows * unit.rows, .column = column_units * j / cut.columns * unit.columns};
    share.rows = std::min(row_units * (i + 1) / cut.rows * unit.rows, c.m) - share.row;
    share.columns = std::min(column_units * (j + 1) / cut.columns * unit.columns, c.n) - share.column;
    if (share.rows > 0 && share.columns > 0) function(share, member);
  });
}

}  // namespace trireme::kernels::cpu
