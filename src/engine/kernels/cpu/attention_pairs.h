#pragma once

// The products of attention of BF16, by pairs (pair_block.h): probabilities and the gradients of scores are rounded to
// BF16 before the products that read them. The interface is that of FloatProducts.

#include <algorithm>
#include <cstring>

#include "engine/kernels/cpu/attention_parts.h"
#include "engine/kernels/cpu/pair_block.h"

namespace trireme::kernels::cpu {

class PairProducts {
 public:
  struct Queries {
    std::uint16_t* rows = nullptr;    // [rows, padded(d)], to be multiplied by keys
    std::uint32_t* panels = nullptr;  // as pack_rows, to be summed up for keys
  };

  PairProducts(std::int64_t s, std::int64_t d)
      : s_(s), d_(d), width_(attention_padded(s)), padded_(attention_padded(d)) {}

  Queries take_queries(Scratch& scratch, std::int64_t rows) const {
    auto* numbers = reinterpret_cast<std::uint16_t*>(scratch.take(rows * padded_ / 2));
    return {numbers, words(scratch.take(pairs(rows) * padded_))};
  }
  float* take_columns(Scratch& scratch) const { return scratch.take(pairs(d_) * width_); }
  float* take_rows(Scratch& scratch, std::int64_t rows) const { return scratch.take(pairs(rows) * padded_); }
  void take_strips(Scratch& scratch, std::int64_t rows) {
    rounded_ = reinterpret_cast<std::uint16_t*>(scratch.take(rows * width_ / 2));
    turned_ = words(scratch.take(attention_turned(s_)));
  }

  void pack_queries(const HeadRows& head, const Queries& to) const {
    pack_factors(head, to);
    pack_rows(head, reinterpret_cast<float*>(to.panels));
  }
  // What scores() reads of them.
  void pack_factors(const HeadRows& head, const Queries& to) const {
    for (std::int64_t i = 0; i < head.rows; ++i) {
      std::uint16_t* place = to.rows + i * padded_;
      std::memcpy(place, numbers(head, i), static_cast<std::size_t>(d_) * sizeof(*place));
      std::memset(place + d_, 0, static_cast<std::size_t>(padded_ - d_) * sizeof(*place));
    }
  }
  // Panels of columns, of pairs of rows.
  void pack_rows(const HeadRows& head, float* to) const {
    const simd::PanelShape shape{d_, kAttentionPanel, kAttentionPanel, pairs(head.rows) * kAttentionPanel};
    for (std::int64_t i = 0; i < head.rows; i += 2) {
      head.read_ahead(i);
      head.read_ahead(i + 1);
      simd::interleave(numbers(head, i), i + 1 < head.rows ? numbers(head, i + 1) : nullptr, shape,
                       words(to) + i / 2 * kAttentionPanel);
    }
  }
  // Panels of rows that became columns, of pairs of columns that became rows.
  void pack_columns(const HeadRows& head, float* to) const {
    for (std::int64_t i = 0; i < head.rows; i += kAttentionPanel) {
      simd::transpose_pairs(numbers(head, i), head.from.stride(), std::min(kAttentionPanel, head.rows - i), d_,
                            words(to) + i * pairs(d_));
    }
  }

  void scores(const Queries& queries, const float* columns, const Block& block, float* strip) const {
    for (std::int64_t key = 0; key < block.keys; key += kAttentionPanel) {
      for (std::int64_t row = std::max<std::int64_t>(0, key - block.begin); row < block.rows; row += simd::kPairRows) {
        multiply({.a = queries.rows + row * padded_,
                  .a_row = padded_,
                  .a_pair = 2,
                  .b = words(columns) + key * pairs(d_),
                  .c = strip + row * width_ + key,
                  .c_stride = width_,
                  .rows = std::min(simd::kPairRows, block.rows - row)},
                 pairs(d_));
      }
    }
  }
  void finish_row(const float* strip, std::int64_t i, std::int64_t seen, const Block& block) const {
    std::uint16_t* row = rounded_ + i * width_;
    simd::narrow(DType::kBF16, strip + i * width_, row, seen);
    std::memset(row + seen, 0, static_cast<std::size_t>(2 * pairs(block.keys) - seen) * sizeof(*row));
  }
  // Of the strip whose rows were finished last.
  void combine(const float*, const float* rows, const Block& block, float* out) const {
    for (std::int64_t row = 0; row < block.rows; row += simd::kPairRows) {
      const std::int64_t count = std::min(simd::kPairRows, block.rows - row);
      for (std::int64_t column = 0; column < padded_; column += kAttentionPanel) {
        multiply({.a = rounded_ + row * width_,
                  .a_row = width_,
                  .a_pair = 2,
                  .b = words(rows) + column * pairs(s_),
                  .c = out + row * padded_ + column,
                  .c_stride = padded_,
                  .rows = count},
                 pairs(block.begin + row + count));
      }
    }
  }
  // The same; the strip is turned into panels of keys first.
  void scatter(const float*, const Queries& queries, const Block& block, float* sums) const {
    const std::int64_t all = pairs(block.rows), panel = all * simd::kPairRows + simd::kPairRoom - simd::kPairRows;
    for (std::int64_t p = 0; p < all; ++p) {
      const std::uint16_t* first = rounded_ + 2 * p * width_;
      simd::interleave(first, 2 * p + 1 < block.rows ? first + width_ : nullptr,
                       {block.keys, simd::kPairRows, simd::kPairRoom, panel}, turned_ + p * simd::kPairRows);
    }
    for (std::int64_t key = 0; key < block.keys; key += simd::kPairRows) {
      const std::int64_t first = std::max<std::int64_t>(0, key - block.begin) / 2;  // a pair
      const std::uint32_t* turned = turned_ + key / simd::kPairRows * panel + first * simd::kPairRows;
      for (std::int64_t column = 0; column < padded_; column += kAttentionPanel) {
        multiply({.a = reinterpret_cast<const std::uint16_t*>(turned),
                  .a_row = 2,
                  .a_pair = 2 * simd::kPairRows,
                  .b = queries.panels + column * all + first * kAttentionPanel,
                  .c = sums + key * padded_ + column,
                  .c_stride = padded_,
                  .rows = std::min(simd::kPairRows, block.keys - key),
                  .add = true},
                 all - first);
      }
    }
  }

 private:
  // What base/attention_tile.h takes them to be.
  static_assert(kAttentionPanel == simd::kPairColumns && simd::kPairRows == 14 && simd::kPairRoom == 16);

  static std::int64_t pairs(std::int64_t count) { return (count + 1) / 2; }
  static std::uint32_t* words(float* scratch) { return reinterpret_cast<std::uint32_t*>(scratch); }
  static const std::uint32_t* words(const float* scratch) { return reinterpret_cast<const std::uint32_t*>(scratch); }
  static const std::uint16_t* numbers(const HeadRows& head, std::int64_t row) {
    return reinterpret_cast<const std::uint16_t*>(head.from.address(head.row + row, head.column));
  }

  // In blocks of the contraction, as all products (kernels.h).
  static void multiply(simd::PairBlock work, std::int64_t count) {
    const bool add = work.add;
    work.columns = kAttentionPanel;
    for (std::int64_t begin = 0; begin < count; begin += kGemmKBlock / 2) {
      work.pairs = std::min(kGemmKBlock / 2, count - begin);
      work.add = add || begin > 0;
      simd::pair_block(work);
      work.a += kGemmKBlock / 2 * work.a_pair;
      work.b += kGemmKBlock / 2 * kAttentionPanel;
    }
  }

  std::int64_t s_, d_, width_, padded_;
  std::uint16_t* rounded_ = nullptr;
  std::uint32_t* turned_ = nullptr;
};

}  // namespace trireme::kernels::cpu
