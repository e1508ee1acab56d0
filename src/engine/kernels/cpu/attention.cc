#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/attention_tile.h"
#include "engine/kernels/cpu/attention_floats.h"
#include "engine/kernels/cpu/attention_pairs.h"
#include "engine/kernels/cpu/cpu_kernels.h"
#include "engine/kernels/cpu/dropout.h"
#include "engine/kernels/cpu/simd.h"
#include "engine/kernels/cpu/typed_rows.h"

namespace trireme::kernels {
namespace {

using cpu::Block;
using cpu::HeadRows;
using cpu::in_rows;
using cpu::InRows;
using cpu::out_rows;
using cpu::OutRows;
using cpu::readable;
using cpu::Rows;
using cpu::Scratch;
using cpu::writable;

template <class Function>
void for_blocks(const AttentionShape& shape, const Function& function) {
  const std::int64_t window = shape.window == 0 ? shape.sequence : std::min(shape.window, shape.sequence);
  for (std::int64_t begin = 0; begin < shape.sequence; begin += kAttentionRows) {
    const std::int64_t rows = std::min(kAttentionRows, shape.sequence - begin);
    function(Block{begin, rows, begin + rows, window});
  }
}

// A result [rows, padded(d)] to where it belongs.
void unpack(const float* from, const OutRows& to, std::int64_t row, std::int64_t rows, std::int64_t column,
            std::int64_t d) {
  for (std::int64_t i = 0; i < rows; ++i) {
    const float* part = from + i * attention_padded(d);
    if (to.is_narrow()) {
      to.done(row + i, column, d, part);
    } else {
      std::memcpy(to.address(row + i, column), part, static_cast<std::size_t>(d) * sizeof(float));
    }
  }
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

// Of the keys that row i sees.
void factors_of(const AttentionShape& shape, const Item& item, std::int64_t head, const Block& block, std::int64_t i,
                std::vector<float>& factors) {
  const std::int64_t row = ((shape.head_begin + head) * shape.sequence + block.begin + i) * shape.sequence;
  const std::int64_t first = block.first_seen(i);
  cpu::dropout_factors(shape.dropout, item.sequence_index, row + first, block.end_seen(i) - first, factors.data());
}

void check(const AttentionShape& shape, const TensorView& scratch, std::int64_t per_thread, int threads) {
  TRIREME_CHECK(shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0, "{} heads on {} key/value heads", shape.heads,
                shape.kv_heads);
  TRIREME_CHECK(shape.window >= 0, "a window of {}", shape.window);
  cpu::check_dropout(shape.dropout, shape.sequences);
  TRIREME_CHECK(scratch.dtype == DType::kF32 && scratch.contiguous() && scratch.elements() >= per_thread * threads,
                "attention scratch: {} {}, not {} of F32", scratch.elements(), dtype_name(scratch.dtype),
                per_thread * threads);
}

// Row i of the head's next block of queries, or of the next head's first, which are worked on after this one.
void read_ahead(const AttentionShape& shape, const Item& item, std::int64_t head, const Block& block, std::int64_t i,
                std::initializer_list<const InRows*> tensors) {
  const bool last = block.keys == shape.sequence;
  const std::int64_t row = (last ? 0 : block.keys) + i, of = last ? head + 1 : head;
  if (row >= shape.sequence || of == shape.heads) return;
  for (const InRows* rows : tensors) rows->prefetch(item.first_row + row, of * shape.head_dim, shape.head_dim);
}

// One row of probabilities from its scores, of the keys seen; returns log-sum-exp.
float softmax_row(float* row, const AttentionShape& shape, std::int64_t seen) {
  const auto scale = static_cast<float>(shape.scale);
  const float most = simd::scaled_maximum(row, scale, seen);
  const float sum = simd::exponentials(row, scale, most, seen);
  simd::scale(row, 1.0f / sum, seen);
  return most + std::log(sum);
}

template <class Products>
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
    const std::int64_t width = attention_padded(s);
    const Item item = item_of(shape_, index);
    Products products(s, d);
    float* keys = products.take_columns(scratch);
    float* values = products.take_rows(scratch, s);
    const typename Products::Queries query = products.take_queries(scratch, rows);
    float* output = scratch.take(rows * attention_padded(d));
    float* strip = scratch.take(rows * width);
    products.take_strips(scratch, rows);
    std::vector<float> factors(shape_.dropout.probability > 0.0 ? static_cast<std::size_t>(s) : 0);
    products.pack_columns({k_, item.first_row, s, item.kv_head * d, d}, keys);
    products.pack_rows({v_, item.first_row, s, item.kv_head * d, d}, values);
    const std::int64_t group = shape_.heads / shape_.kv_heads;
    for (std::int64_t head = item.kv_head * group; head < (item.kv_head + 1) * group; ++head) {
      for_blocks(shape_, [&](const Block& block) {
        products.pack_factors({q_, item.first_row + block.begin, block.rows, head * d, d}, query);
        products.scores(query, keys, block, strip);
        for (std::int64_t i = 0; i < block.rows; ++i) {
          read_ahead(shape_, item, head, block, i, {&q_});
          const std::int64_t first = block.first_seen(i), seen = block.end_seen(i) - first;
          float* row = strip + i * width + first;
          log_sum_exp_.row(item.sequence_index * shape_.heads + head)[block.begin + i] = softmax_row(row, shape_, seen);
          if (!factors.empty()) {
            factors_of(shape_, item, head, block, i, factors);
            simd::apply_factors(row, row, factors.data(), seen);
          }
          products.finish_row(strip, i, block);
        }
        products.combine(strip, values, block, output);
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

template <class Products>
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
    const std::int64_t width = attention_padded(s), padded = attention_padded(d);
    const Item item = item_of(shape_, index);
    Memory m(s, d);
    m.keys = m.products.take_rows(scratch, s);
    m.key_columns = m.products.take_columns(scratch);
    m.value_columns = m.products.take_columns(scratch);
    m.d_keys = scratch.take(s * padded);
    m.d_values = scratch.take(s * padded);
    m.query = m.products.take_queries(scratch, rows);
    m.d_output = m.products.take_queries(scratch, rows);
    m.d_query = scratch.take(rows * padded);
    m.strip = scratch.take(rows * width);
    m.d_strip = scratch.take(rows * width);
    m.products.take_strips(scratch, rows);
    m.factors.resize(shape_.dropout.probability > 0.0 ? static_cast<std::size_t>(s) : 0);
    m.room.resize(static_cast<std::size_t>(2 * d));
    const HeadRows keys{k_, item.first_row, s, item.kv_head * d, d};
    m.products.pack_rows(keys, m.keys);
    m.products.pack_columns(keys, m.key_columns);
    m.products.pack_columns({v_, item.first_row, s, item.kv_head * d, d}, m.value_columns);
    std::memset(m.d_keys, 0, static_cast<std::size_t>(s * padded) * sizeof(float));
    std::memset(m.d_values, 0, static_cast<std::size_t>(s * padded) * sizeof(float));
    const std::int64_t group = shape_.heads / shape_.kv_heads;
    for (std::int64_t head = item.kv_head * group; head < (item.kv_head + 1) * group; ++head) {
      for_blocks(shape_, [&](const Block& block) { this->block(item, head, block, m); });
    }
    unpack(m.d_keys, d_k_, item.first_row, s, item.kv_head * d, d);
    unpack(m.d_values, d_v_, item.first_row, s, item.kv_head * d, d);
  }

 private:
  struct Memory {
    Memory(std::int64_t s, std::int64_t d) : products(s, d) {}
    Products products;
    float *keys = nullptr, *key_columns = nullptr, *value_columns = nullptr, *d_keys = nullptr, *d_values = nullptr;
    typename Products::Queries query, d_output;
    float *d_query = nullptr, *strip = nullptr, *d_strip = nullptr;
    std::vector<float> factors;
    std::vector<float> room;  // for rows of d_out and out that are to be widened
  };

  void block(const Item& item, std::int64_t head, const Block& block, Memory& m) const {
    const std::int64_t d = shape_.head_dim, row = item.first_row + block.begin;
    m.products.pack_queries({q_, row, block.rows, head * d, d}, m.query);
    m.products.pack_queries({d_out_, row, block.rows, head * d, d}, m.d_output);
    m.products.scores(m.query, m.key_columns, block, m.strip);
    m.products.scores(m.d_output, m.value_columns, block, m.d_strip);
    for (std::int64_t i = 0; i < block.rows; ++i) {
      read_ahead(shape_, item, head, block, i, {&q_, &d_out_, &out_});
      gradient_row(item, head, block, i, m);
    }
    m.products.scatter(m.strip, m.d_output, block, m.d_values);
    for (std::int64_t i = 0; i < block.rows; ++i) m.products.finish_row(m.d_strip, i, block);
    m.products.scatter(m.d_strip, m.query, block, m.d_keys);
    m.products.combine(m.d_strip, m.keys, block, m.d_query);
    unpack(m.d_query, d_q_, row, block.rows, head * d, d);
  }

  // Probabilities and gradients of scores of a query, from scores and products with values.
  void gradient_row(const Item& item, std::int64_t head, const Block& block, std::int64_t i, Memory& m) const {
    const std::int64_t d = shape_.head_dim, width = attention_padded(shape_.sequence);
    const std::int64_t row = item.first_row + block.begin + i, position = block.begin + i;
    const std::int64_t first = block.first_seen(i), at = i * width + first;
    const float row_dot =
        simd::dot(d_out_.part(row, head * d, d, m.room.data()), out_.part(row, head * d, d, m.room.data() + d), d);
    if (!m.factors.empty()) factors_of(shape_, item, head, block, i, m.factors);
    simd::attention_gradient(m.strip + at, m.d_strip + at, static_cast<float>(shape_.scale),
                             log_sum_exp_.row(item.sequence_index * shape_.heads + head)[position], row_dot,
                             m.factors.empty() ? nullptr : m.factors.data(), block.end_seen(i) - first);
    m.products.finish_row(m.strip, i, block);
  }

  const AttentionShape& shape_;
  InRows q_, k_, v_, out_, d_out_;
  Rows<const float> log_sum_exp_;
  OutRows d_q_, d_k_, d_v_;
};

template <class Pass, class Work>
void run(const Work& work, std::int64_t per_thread, cpu::Team& team) {
  check(work.shape, work.scratch, per_thread, team.size());
  const Pass pass(work, work.shape.sequences * work.shape.sequence);
  auto* scratch = reinterpret_cast<float*>(work.scratch.data);
  cpu::parallel_members(team, work.shape.sequences * work.shape.kv_heads, [&](std::int64_t index, int member) {
    pass.item(index, Scratch(scratch + member * per_thread, per_thread));
  });
}

}  // namespace

void CpuKernels::attention_forward(const AttentionForward& work) {
  const std::int64_t per_thread = attention_forward_scratch(work.shape.sequence, work.shape.head_dim);
  all_bf16(work.q, work.k, work.v) ? run<Forward<cpu::PairProducts>>(work, per_thread, team_)
                                   : run<Forward<cpu::FloatProducts>>(work, per_thread, team_);
}

void CpuKernels::attention_backward(const AttentionBackward& work) {
  const std::int64_t per_thread = attention_backward_scratch(work.shape.sequence, work.shape.head_dim);
  all_bf16(work.q, work.k, work.v, work.d_out) ? run<Backward<cpu::PairProducts>>(work, per_thread, team_)
                                               : run<Backward<cpu::FloatProducts>>(work, per_thread, team_);
}

}  // namespace trireme::kernels
