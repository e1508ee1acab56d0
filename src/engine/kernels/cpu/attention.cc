#include <cmath>
#include <cstring>
#include <vector>

#include <omp.h>

#include "base/attention_tile.h"
#include "engine/kernels/cpu/cpu_kernels.h"
#include "engine/kernels/cpu/dropout.h"
#include "engine/kernels/cpu/product.h"
#include "engine/kernels/cpu/simd.h"
#include "engine/kernels/cpu/typed_rows.h"

namespace trireme::kernels {
namespace {

using cpu::in_rows;
using cpu::InRows;
using cpu::out_rows;
using cpu::OutRows;
using cpu::readable;
using cpu::Rows;
using cpu::writable;

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

// A contiguous [rows, d] matrix of part of a head's columns.
void pack(const InRows& from, std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t d, float* to) {
  for (std::int64_t i = 0; i < rows; ++i) {
    float* place = to + i * d;
    const float* part = from.part(row + i, column, d, place);
    if (part != place) std::memcpy(place, part, static_cast<std::size_t>(d) * sizeof(float));
  }
}
void unpack(const float* from, const OutRows& to, std::int64_t row, std::int64_t rows, std::int64_t column,
            std::int64_t d) {
  for (std::int64_t i = 0; i < rows; ++i) {
    if (to.is_narrow()) {
      to.done(row + i, column, d, from + i * d);
    } else {
      std::memcpy(to.address(row + i, column), from + i * d, static_cast<std::size_t>(d) * sizeof(float));
    }
  }
}

// A block of queries of one head: rows [begin, begin + rows) of its sequence see keys [0, keys).
struct Block {
  std::int64_t begin;
  std::int64_t rows;
  std::int64_t keys;
};

template <class Function>
void for_blocks(std::int64_t sequence, const Function& function) {
  for (std::int64_t begin = 0; begin < sequence; begin += kAttentionRows) {
    const std::int64_t rows = std::min(kAttentionRows, sequence - begin);
    function(Block{begin, rows, begin + rows});
  }
}

// [rows, keys] = left [rows, d] right [keys, d]'.
void scores(const float* left, const float* right, const Block& block, std::int64_t d, float* strip) {
  cpu::multiply({.a = left,
                 .a_stride = d,
                 .b = right,
                 .b_stride = d,
                 .transpose_b = true,
                 .c = strip,
                 .c_stride = block.keys,
                 .m = block.rows,
                 .n = block.keys,
                 .k = d},
                1);
}
// [rows, d] = strip [rows, keys] right [keys, d].
void combine(const float* strip, const float* right, const Block& block, std::int64_t d, float* out) {
  cpu::multiply({.a = strip,
                 .a_stride = block.keys,
                 .b = right,
                 .b_stride = d,
                 .c = out,
                 .c_stride = d,
                 .m = block.rows,
                 .n = d,
                 .k = block.keys},
                1);
}
// sums [keys, d] += strip [rows, keys]' right [rows, d].
void scatter(const float* strip, const float* right, const Block& block, std::int64_t d, float* sums) {
  cpu::multiply({.a = strip,
                 .a_stride = block.keys,
                 .transpose_a = true,
                 .b = right,
                 .b_stride = d,
                 .c = sums,
                 .c_stride = d,
                 .m = block.keys,
                 .n = d,
                 .k = block.rows,
                 .accumulate = true},
                1);
}

// Where a work item (one key/value head of one sequence) lies.
struct Item {
  std::int64_t sequence_index;
  std::int64_t kv_head;
  std::int64_t first_row;
};
Item item_of(const AttentionShape& shape, std::int64_t index) {
  const std::int64_t i = index / shape.kv_heads;
  return {i, index % shape.kv_heads, i * shape.sequence};
}

void factors_of(const AttentionShape& shape, const Item& item, std::int64_t head, std::int64_t query,
                std::vector<float>& factors) {
  const std::int64_t first = ((shape.head_begin + head) * shape.sequence + query) * shape.sequence;
  cpu::dropout_factors(shape.dropout, item.sequence_index, first, query + 1, factors.data());
}

void check(const AttentionShape& shape, const TensorView& scratch, std::int64_t per_thread, int threads) {
  TRIREME_CHECK(shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0, "{} heads on {} key/value heads", shape.heads,
                shape.kv_heads);
  cpu::check_dropout(shape.dropout, shape.sequences);
  TRIREME_CHECK(scratch.dtype == DType::kF32 && scratch.contiguous() && scratch.elements() >= per_thread * threads,
                "attention scratch: {} {}, not {} of F32", scratch.elements(), dtype_name(scratch.dtype),
                per_thread * threads);
}

float* thread_scratch(const TensorView& scratch, std::int64_t per_thread, int threads) {
  const int thread = threads == 1 ? 0 : omp_get_thread_num();
  return reinterpret_cast<float*>(scratch.data) + thread * per_thread;
}

// One row of probabilities from its scores; returns log-sum-exp. What lies behind the query is zero.
float softmax_row(float* row, const AttentionShape& shape, std::int64_t query, std::int64_t keys) {
  const auto scale = static_cast<float>(shape.scale);
  const std::int64_t seen = query + 1;
  const float most = simd::scaled_maximum(row, scale, seen);
  const float sum = simd::exponentials(row, scale, most, seen);
  simd::scale(row, 1.0f / sum, seen);
  std::memset(row + seen, 0, static_cast<std::size_t>(keys - seen) * sizeof(float));
  return most + std::log(sum);
}

class Forward {
 public:
  Forward(const AttentionForward& work, std::int64_t tokens)
      : shape_(work.shape),
        q_(in_rows(work.q, tokens, shape_.heads * shape_.head_dim, "q")),
        k_(in_rows(work.k, tokens, shape_.kv_heads * shape_.head_dim, "k")),
        v_(in_rows(work.v, tokens, shape_.kv_heads * shape_.head_dim, "v")),
        out_(out_rows(work.out, tokens, shape_.heads * shape_.head_dim, "out")),
        log_sum_exp_(writable(work.log_sum_exp, shape_.sequences * shape_.heads, shape_.sequence, "log_sum_exp")) {}

  void item(std::int64_t index, Scratch scratch) const {
    const std::int64_t s = shape_.sequence, d = shape_.head_dim, rows = std::min(kAttentionRows, s);
    const Item item = item_of(shape_, index);
    float* keys = scratch.take(s * d);
    float* values = scratch.take(s * d);
    float* query = scratch.take(rows * d);
    float* output = scratch.take(rows * d);
    float* strip = scratch.take(rows * s);
    std::vector<float> factors(shape_.dropout.probability > 0.0 ? static_cast<std::size_t>(s) : 0);
    pack(k_, item.first_row, s, item.kv_head * d, d, keys);
    pack(v_, item.first_row, s, item.kv_head * d, d, values);
    const std::int64_t group = shape_.heads / shape_.kv_heads;
    for (std::int64_t head = item.kv_head * group; head < (item.kv_head + 1) * group; ++head) {
      for_blocks(s, [&](const Block& block) {
        pack(q_, item.first_row + block.begin, block.rows, head * d, d, query);
        scores(query, keys, block, d, strip);
        for (std::int64_t i = 0; i < block.rows; ++i) {
          float* row = strip + i * block.keys;
          const std::int64_t position = block.begin + i;
          log_sum_exp_.row(item.sequence_index * shape_.heads + head)[position] =
              softmax_row(row, shape_, position, block.keys);
          if (factors.empty()) continue;
          factors_of(shape_, item, head, position, factors);
          simd::apply_factors(row, row, factors.data(), position + 1);
        }
        combine(strip, values, block, d, output);
        unpack(output, out_, item.first_row + block.begin, block.rows, head * d, d);
      });
    }
  }

 private:
  const AttentionShape& shape_;
  InRows q_, k_, v_;
  OutRows out_;
  Rows<float> log_sum_exp_;
};

class Backward {
 public:
  Backward(const AttentionBackward& work, std::int64_t tokens)
      : shape_(work.shape),
        q_(in_rows(work.q, tokens, shape_.heads * shape_.head_dim, "q")),
        k_(in_rows(work.k, tokens, shape_.kv_heads * shape_.head_dim, "k")),
        v_(in_rows(work.v, tokens, shape_.kv_heads * shape_.head_dim, "v")),
        out_(in_rows(work.out, tokens, shape_.heads * shape_.head_dim, "out")),
        d_out_(in_rows(work.d_out, tokens, shape_.heads * shape_.head_dim, "d_out")),
        log_sum_exp_(readable(work.log_sum_exp, shape_.sequences * shape_.heads, shape_.sequence, "log_sum_exp")),
        d_q_(out_rows(work.d_q, tokens, shape_.heads * shape_.head_dim, "d_q")),
        d_k_(out_rows(work.d_k, tokens, shape_.kv_heads * shape_.head_dim, "d_k")),
        d_v_(out_rows(work.d_v, tokens, shape_.kv_heads * shape_.head_dim, "d_v")) {}

  void item(std::int64_t index, Scratch scratch) const {
    const std::int64_t s = shape_.sequence, d = shape_.head_dim, rows = std::min(kAttentionRows, s);
    const Item item = item_of(shape_, index);
    Memory m;
    m.keys = scratch.take(s * d);
    m.values = scratch.take(s * d);
    m.d_keys = scratch.take(s * d);
    m.d_values = scratch.take(s * d);
    m.query = scratch.take(rows * d);
    m.d_query = scratch.take(rows * d);
    m.d_output = scratch.take(rows * d);
    m.strip = scratch.take(rows * s);
    m.d_strip = scratch.take(rows * s);
    m.factors.resize(shape_.dropout.probability > 0.0 ? static_cast<std::size_t>(s) : 0);
    m.out_row.resize(out_.is_narrow() ? static_cast<std::size_t>(d) : 0);
    pack(k_, item.first_row, s, item.kv_head * d, d, m.keys);
    pack(v_, item.first_row, s, item.kv_head * d, d, m.values);
    std::memset(m.d_keys, 0, static_cast<std::size_t>(s * d) * sizeof(float));
    std::memset(m.d_values, 0, static_cast<std::size_t>(s * d) * sizeof(float));
    const std::int64_t group = shape_.heads / shape_.kv_heads;
    for (std::int64_t head = item.kv_head * group; head < (item.kv_head + 1) * group; ++head) {
      for_blocks(s, [&](const Block& block) { this->block(item, head, block, m); });
    }
    unpack(m.d_keys, d_k_, item.first_row, s, item.kv_head * d, d);
    unpack(m.d_values, d_v_, item.first_row, s, item.kv_head * d, d);
  }

 private:
  struct Memory {
    float *keys, *values, *d_keys, *d_values, *query, *d_query, *d_output, *strip, *d_strip;
    std::vector<float> factors;
    std::vector<float> out_row;  // where it is to be widened
  };

  void block(const Item& item, std::int64_t head, const Block& block, Memory& m) const {
    const std::int64_t d = shape_.head_dim, row = item.first_row + block.begin;
    pack(q_, row, block.rows, head * d, d, m.query);
    pack(d_out_, row, block.rows, head * d, d, m.d_output);
    scores(m.query, m.keys, block, d, m.strip);
    scores(m.d_output, m.values, block, d, m.d_strip);
    for (std::int64_t i = 0; i < block.rows; ++i) {
      const std::int64_t position = block.begin + i, seen = position + 1;
      float* p = m.strip + i * block.keys;
      float* d_p = m.d_strip + i * block.keys;
      const float row_dot = simd::dot(m.d_output + i * d, out_.part(row + i, head * d, d, m.out_row.data()), d);
      if (!m.factors.empty()) factors_of(shape_, item, head, position, m.factors);
      simd::attention_gradient(p, d_p, static_cast<float>(shape_.scale),
                               log_sum_exp_.row(item.sequence_index * shape_.heads + head)[position], row_dot,
                               m.factors.empty() ? nullptr : m.factors.data(), seen);
      const std::size_t behind = static_cast<std::size_t>(block.keys - seen) * sizeof(float);
      std::memset(p + seen, 0, behind);
      std::memset(d_p + seen, 0, behind);
    }
    scatter(m.strip, m.d_output, block, d, m.d_values);
    scatter(m.d_strip, m.query, block, d, m.d_keys);
    combine(m.d_strip, m.keys, block, d, m.d_query);
    unpack(m.d_query, d_q_, row, block.rows, head * d, d);
  }

  const AttentionShape& shape_;
  InRows q_, k_, v_, out_, d_out_;
  Rows<const float> log_sum_exp_;
  OutRows d_q_, d_k_, d_v_;
};

}  // namespace

void CpuKernels::attention_forward(const AttentionForward& work) {
  const std::int64_t per_thread = attention_forward_scratch(work.shape.sequence, work.shape.head_dim);
  check(work.shape, work.scratch, per_thread, threads_);
  const Forward pass(work, work.shape.sequences * work.shape.sequence);
  cpu::parallel_for(threads_, work.shape.sequences * work.shape.kv_heads, [&](std::int64_t index) {
    pass.item(index, Scratch(thread_scratch(work.scratch, per_thread, threads_), per_thread));
  });
}

void CpuKernels::attention_backward(const AttentionBackward& work) {
  const std::int64_t per_thread = attention_backward_scratch(work.shape.sequence, work.shape.head_dim);
  check(work.shape, work.scratch, per_thread, threads_);
  const Backward pass(work, work.shape.sequences * work.shape.sequence);
  cpu::parallel_for(threads_, work.shape.sequences * work.shape.kv_heads, [&](std::int64_t index) {
    pass.item(index, Scratch(thread_scratch(work.scratch, per_thread, threads_), per_thread));
  });
}

}  // namespace trireme::kernels
