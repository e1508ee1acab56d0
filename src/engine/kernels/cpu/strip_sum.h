#pragma once

// Sums over the rows of tensors, cut by columns into strips, so that which thread takes which changes nothing.

#include <cstring>

#include "engine/kernels/cpu/simd.h"
#include "engine/kernels/cpu/typed_rows.h"

namespace trireme::kernels::cpu {

// sums = or += what sum(begin, count, total) adds to `total` (zeros), for columns [begin, begin + count).
template <class Sum>
void sum_strips(int threads, const OutRows& sums, std::int64_t columns, bool accumulate, const Sum& sum) {
  parallel_pieces(threads, columns, simd::kMaxStripColumns, [&](std::int64_t begin, std::int64_t end) {
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

// function(row, count) for the rows of each chain.
template <class Function>
void for_chains(std::int64_t rows, const Function& function) {
  for (std::int64_t row = 0; row < rows; row += simd::kChainRows) {
    function(row, row + simd::kChainRows < rows ? simd::kChainRows : rows - row);
  }
}

// Rows [row, row + rows) of columns [begin, begin + count) to a dense matrix.
inline void widen_strip(const InRows& from, std::int64_t row, std::int64_t rows, std::int64_t begin, std::int64_t count,
                        float* to) {
  for (std::int64_t i = 0; i < rows; ++i) {
    float* place = to + i * count;
    const float* part = from.part(row + i, begin, count, place);
    if (part != place) std::memcpy(place, part, static_cast<std::size_t>(count) * sizeof(float));
  }
}

}  // namespace trireme::kernels::cpu
