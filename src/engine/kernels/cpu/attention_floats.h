#pragma once

// The products of attention in F32. Sizes are of floats of scratch; strips are [rows, padded(s)], the other results
// [., padded(d)].

#include <algorithm>
#include <cstring>
#include <vector>

#include "engine/kernels/cpu/attention_parts.h"
#include "engine/kernels/cpu/simd.h"

namespace trireme::kernels::cpu {

class FloatProducts {
 public:
  // Of queries, to be multiplied by keys, and to be summed up for keys: here one thing.
  struct Queries {
    float* rows = nullptr;
  };

  FloatProducts(std::int64_t s, std::int64_t d) : d_(d), width_(attention_padded(s)), padded_(attention_padded(d)) {}

  Queries take_queries(Scratch& scratch, std::int64_t rows) const { return {scratch.take(rows * padded_)}; }
  float* take_columns(Scratch& scratch) const { return scratch.take(d_ * width_); }
  float* take_rows(Scratch& scratch, std::int64_t rows) const { return scratch.take(rows * padded_); }
  void take_strips(Scratch&, std::int64_t) const {}

  void pack_queries(const HeadRows& head, const Queries& to) const { pack_rows(head, to.rows); }
  void pack_factors(const HeadRows& head, const Queries& to) const { pack_rows(head, to.rows); }
  // [rows, padded(d)], zeros behind the columns.
  void pack_rows(const HeadRows& head, float* to) const {
    for (std::int64_t i = 0; i < head.rows; ++i) {
      float* place = to + i * padded_;
      const float* part = head.from.part(head.row + i, head.column, d_, place);
      if (part != place) std::memcpy(place, part, static_cast<std::size_t>(d_) * sizeof(float));
      std::memset(place + d_, 0, static_cast<std::size_t>(padded_ - d_) * sizeof(float));
    }
  }
  // [d, padded(s)], zeros behind the columns.
  void pack_columns(const HeadRows& head, float* to) const {
    constexpr std::int64_t kAtATime = 16;
    std::vector<float> room(static_cast<std::size_t>(head.from.is_narrow() ? kAtATime * d_ : 0));
    for (std::int64_t begin = 0; begin < width_; begin += kAtATime) {
      const float* rows[kAtATime];
      const std::int64_t count = std::clamp<std::int64_t>(head.rows - begin, 0, kAtATime);
      for (std::int64_t i = 0; i < count; ++i) {
        rows[i] = head.from.part(head.row + begin + i, head.column, d_, room.data() + i * d_);
      }
      for (std::int64_t j = 0; j < d_; ++j) {
        float* place = to + j * width_ + begin;
        for (std::int64_t i = 0; i < count; ++i) place[i] = rows[i][j];
        for (std::int64_t i = count; i < kAtATime; ++i) place[i] = 0.0f;
      }
    }
  }

  // strip = queries columns.
  void scores(const Queries& queries, const float* columns, const Block& block, float* strip) const {
    for (std::int64_t key = round_down(block.first_key()); key < block.keys; key += kAttentionPanel) {
      const std::int64_t first = block.first_row(key);
      multiply({.a = queries.rows + first * padded_,
                .a_row = padded_,
                .a_column = 1,
                .b = columns + key,
                .b_row = width_,
                .c = strip + first * width_ + key,
                .c_stride = width_,
                .rows = block.end_row(key + kAttentionPanel) - first},
               0, d_);
    }
  }
  // What combine and scatter read of a strip's row i, of which the keys seen are there.
  void finish_row(float* strip, std::int64_t i, const Block& block) const {
    float* row = strip + i * width_;
    std::fill(row + block.first_key(), row + block.first_seen(i), 0.0f);
    std::fill(row + block.end_seen(i), row + block.keys, 0.0f);
  }
  // out = strip rows.
  void combine(const float* strip, const float* rows, const Block& block, float* out) const {
    for (std::int64_t row = 0; row < block.rows; row += kGroup) {
      const std::int64_t count = std::min(kGroup, block.rows - row), first = block.first_seen(row);
      for (std::int64_t column = 0; column < padded_; column += kAttentionPanel) {
        multiply({.a = strip + row * width_ + first,
                  .a_row = width_,
                  .a_column = 1,
                  .b = rows + first * padded_ + column,
                  .b_row = padded_,
                  .c = out + row * padded_ + column,
                  .c_stride = padded_,
                  .rows = count},
                 first, block.end_seen(row + count - 1));
      }
    }
  }
  // sums += strip' queries.
  void scatter(const float* strip, const Queries& queries, const Block& block, float* sums) const {
    for (std::int64_t key = block.first_key(); key < block.keys; key += kGroup) {
      const std::int64_t first = block.first_row(key), count = std::min(kGroup, block.keys - key);
      for (std::int64_t column = 0; column < padded_; column += kAttentionPanel) {
        multiply({.a = strip + first * width_ + key,
                  .a_row = 1,
                  .a_column = width_,
                  .b = queries.rows + first * padded_ + column,
                  .b_row = padded_,
                  .c = sums + key * padded_ + column,
                  .c_stride = padded_,
                  .rows = count,
                  .add = true},
                 0, block.end_row(key + count) - first);
      }
    }
  }

 private:
  static constexpr std::int64_t kGroup = 16;  // rows of a result whose contraction is cut alike

  static std::int64_t round_down(std::int64_t key) { return key / kAttentionPanel * kAttentionPanel; }

  // Terms [begin, end) of a contraction, in its blocks, as all products (kernels.h). a and b are at `begin`.
  static void multiply(simd::PanelProduct work, std::int64_t begin, std::int64_t end) {
    const bool add = work.add;
    for (std::int64_t at = begin; at < end; at += work.inner) {
      work.inner = std::min(kGemmKBlock - at % kGemmKBlock, end - at);
      work.add = add || at > begin;
      simd::panel_product(work);
      work.a += work.inner * work.a_column;
      work.b += work.inner * work.b_row;
    }
  }

  std::int64_t d_, width_, padded_;
};

}  // namespace trireme::kernels::cpu
