#pragma once

// Sums over the rows of tensors, cut by columns into strips, so that which thread takes which changes nothing.

#include <algorithm>
#include <cstring>

#include "base/units.h"
#include "engine/kernels/cpu/simd.h"
#include "engine/kernels/cpu/typed_rows.h"

namespace trireme::kernels::cpu {

// Columns of a strip: many, so that rows are read in long pieces, but a piece for every thread.
inline std::int64_t strip_columns(int threads, std::int64_t columns) {
  constexpr std::int64_t kLine = 16;
  return std::clamp(round_up(divide_up(columns, threads), kLine), kLine, simd::kMaxStripColumns);
}

// sums = or += what sum(begin, count, total) adds to `total` (zeros), for columns [begin, begin + count).
template <class Sum>
void sum_strips(Team& team, const OutRows& sums, std::int64_t columns, bool accumulate, const Sum& sum) {
  parallel_pieces(team, columns, strip_columns(team.size(), columns), [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t count = end - begin;
    float total[simd::kMaxStripColumns] = {};
    sum(begin, count, total);
    float room[simd::kMaxStripColumns];
    float* to = sums.open(0, begin, count, room, accumulate);
    if (accumulate) {
      simd::add(to, total, count);
    } else {
      std::memcpy(to, total, static_cast<std::size_t>(count) * sizeof(float));
    }
    sums.done(0, begin, count, to);
  });
}

// total += what sum(row, chain) adds to chains (zeros) for one row after the other: for rows that are widened one at a
// time.
template <class Sum>
void sum_chains(std::int64_t rows, std::int64_t count, float* total, const Sum& sum) {
  for (std::int64_t begin = 0; begin < rows; begin += simd::kChainRows) {
    float chain[simd::kMaxStripColumns] = {};
    for (std::int64_t row = begin; row < std::min(begin + simd::kChainRows, rows); ++row) sum(row, chain);
    simd::add(total, chain, count);
  }
}

}  // namespace trireme::kernels::cpu
