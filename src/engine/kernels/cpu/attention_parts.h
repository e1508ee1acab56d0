#pragma once

// What the two kinds of attention's products share (attention_floats.h, attention_pairs.h).

#include <algorithm>
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

// A block of queries of one head: rows [begin, begin + rows) of its sequence see keys before `keys`. Row i sees keys
// [first_seen(i), end_seen(i)), `window` of them, or all up to its own.
struct Block {
  std::int64_t begin;
  std::int64_t rows;
  std::int64_t keys;
  std::int64_t window;  // 1 to the sequence's length

  std::int64_t first_seen(std::int64_t i) const { return std::max<std::int64_t>(0, begin + i + 1 - window); }
  std::int64_t end_seen(std::int64_t i) const { return begin + i + 1; }
  std::int64_t first_key() const { return first_seen(0); }
  // Rows [first_row(key), end_row(end)) see one of keys [key, end), which overlap [first_key(), keys).
  std::int64_t first_row(std::int64_t key) const { return std::max<std::int64_t>(0, key - begin); }
  std::int64_t end_row(std::int64_t end) const { return std::min(rows, end - 1 + window - begin); }
};

// A strip is [rows, padded(s)]. A query's row is used from the first key that it sees to its own: what lies before and
// behind is neither computed nor read, but for zeros that add nothing. So bits do not show which tiles are visited:
// products over keys are cut at multiples of kGemmKBlock from the sequence's first key, wherever a window begins, and a
// row's maximum and sum of exponentials have an order that depends on the number of keys seen alone.

}  // namespace trireme::kernels::cpu
