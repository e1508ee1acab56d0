#pragma once

// What the two kinds of attention's products share (attention_floats.h, attention_pairs.h).

#include <cstdint>

#include "base/attention_tile.h"
#include "base/check.h"
#include "engine/kernels/cpu/typed_rows.h"

namespace trireme::kernels::cpu {

// Scratch of a thread, given out piece by piece.
class Scratch {
 public:
  Scratch(float* data, std::int64_t size) : data_(data), left_(size) {}
  float* take(std::int64_t size) {
    TRIREME_CHECK_LE(size, left_);
    float* start = data_;
    data_ += size;
    left_ -= size;
    return start;
  }

 private:
  float* data_;
  std::int64_t left_;
};

// Part of a head: rows of `from`, d columns from `column` on.
struct HeadRows {
  const InRows& from;
  std::int64_t row;
  std::int64_t rows;
  std::int64_t column;
  std::int64_t d;

  // Of a loop over the rows that is at the i-th.
  void read_ahead(std::int64_t i) const {
    constexpr std::int64_t kAhead = 16;
    if (i + kAhead < rows) from.prefetch(row + i + kAhead, column, d);
  }
};

// A block of queries of one head: rows [begin, begin + rows) of its sequence see keys [0, keys).
struct Block {
  std::int64_t begin;
  std::int64_t rows;
  std::int64_t keys;
};

// A strip is [rows, padded(s)]. A query's row is used up to its own key: what lies behind is neither computed nor read,
// but for zeros that add nothing.

}  // namespace trireme::kernels::cpu
