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
    for (std::int64_t key = round_down(block.first_key()); key < block.keys; key += kAttentionPanel) {
      const std::int64_t end = block.end_row(key + kAttentionPanel);
      for (std::int64_t row = block.first_row(key); row < end; row += simd::kPairRows) {
        multiply({.a = queries.rows + row * padded_,
                  .a_row = padded_,
                  .a_pair = 2,
                  .b = words(columns) + key * pairs(d_),
                  .c = strip + row * width_ + key,
                  .c_stride = width_,
                  .rows = std::min(simd::kPairRows, end - row)},
                 0, pairs(d_));
      }
    }
  }
  // Whole pairs, the first key's and the last one's.
  void finish_row(const float* strip, std::int64_t i, const Block& block) const {
    const std::int64_t first = block.first_seen(i), end = block.end_seen(i);
    std::uint16_t* row = rounded_ + i * width_;
    simd::narrow(DType::kBF16, strip + i * width_ + first, row + first, end - first);
    std::fill(row + block.first_key() / 2 * 2, row + first, std::uint16_t{0});
    std::fill(row + end, row + 2 * pairs(block.keys), std::uint16_t{0});
  }
  // Of the strip whose rows were finished last.
  void combine(const float*, const float* rows, const Block& block, float* out) const {
    for (std::int64_t row = 0; row < block.rows; row += simd::kPairRows) {
      const std::int64_t count = std::min(simd::kPairRows, block.rows - row);
      const std::int64_t first = block.first_seen(row) / 2;  // a pair
      for (std::int64_t column = 0; column < padded_; column += kAttentionPanel) {
        multiply({.a = rounded_ + row * width_ + 2 * first,
                  .a_row = width_,
                  .a_pair = 2,
                  .b = words(rows) + column * pairs(s_) + first * kAttentionPanel,
                  .c = out + row * padded_ + column,
                  .c_stride = padded_,
                  .rows = count},
                 first, pairs(block.end_seen(row + count - 1)));
      }
    }
  }
  // The same; the strip is turned into panels of keys first.
  void scatter(const float*, const Queries& queries, const Block& block, float* sums) const {
    const std::int64_t all = pairs(block.rows), panel = all * simd::kPairRows + simd::kPairRoom - simd::kPairRows;
    for (std::int64_t p = 0; p < all; ++p) {
      const std::uint16_t* first = rounded_ + 2 * p * width_ + block.first_key();
      simd::interleave(first, 2 * p + 1 < block.rows ? first + width_ : nullptr,
                       {block.keys - block.first_key(), simd::kPairRows, simd::kPairRoom, panel},
                       turned_ + p * simd::kPairRows);
    }
    const std::uint32_t* turned = turned_;
    for (std::int64_t key = block.first_key(); key < block.keys; key += simd::kPairRows, turned += panel) {
      const std::int64_t count = std::min(simd::kPairRows, block.keys - key);
      const std::int64_t first = block.first_row(key) / 2;  // a pair
      for (std::int64_t column = 0; column < padded_; column += kAttentionPanel) {
        multiply({.a = reinterpret_cast<const std::uint16_t*>(turned + first * simd::kPairRows),
                  .a_row = 2,
                  .a_pair = 2 * simd::kPairRows,
                  .b = queries.panels + column * all + first * kAttentionPanel,
                  .c = sums + key * padded_ + column,
                  .c_stride = padded_,
                  .rows = count,
                  .add = true},
                 0, pairs(block.end_row(key + count)) - first);
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

  static std::int64_t round_down(std::int64_t key) { return key / kAttentionPanel * kAttentionPanel; }

  // Pairs [begin, end) of a contraction, in its blocks, as all products (kernels.h). a and b are at `begin`.
  static void multiply(simd::PairBlock work, std::int64_t begin, std::int64_t end) {
    constexpr std::int64_t kBlock = kGemmKBlock / 2;
    const bool add = work.add;
    work.columns = kAttentionPanel;
    for (std::int64_t at = begin; at < end; at += work.pairs) {
      work.pairs = std::min(kBlock - at % kBlock, end - at);
      work.add = add || at > begin;
      simd::pair_block(work);
      work.a += work.pairs * work.a_pair;
      work.b += work.pairs * kAttentionPanel;
    }
  }

  std::int64_t s_, d_, width_, padded_;
  std::uint16_t* rounded_ = nullptr;
  std::uint32_t* turned_ = nullptr;
};

}  // namespace trireme::kernels::cpu
