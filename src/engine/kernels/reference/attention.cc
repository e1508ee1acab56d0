#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "base/attention_tile.h"
#include "base/dtype.h"
#include "engine/kernels/reference/access.h"
#include "engine/kernels/reference/dropout.h"
#include "engine/kernels/reference/reference_kernels.h"
#include "engine/kernels/reference/widened.h"

namespace trireme::kernels {
namespace {

using reference::Matrix;
using reference::readable;
using reference::writable;

void check_shape(const AttentionShape& shape) {
  TRIREME_CHECK(shape.sequences > 0 && shape.sequence > 0 && shape.head_dim > 0, "{} sequences of {}, head_dim {}",
                shape.sequences, shape.sequence, shape.head_dim);
  TRIREME_CHECK(shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0, "{} heads share {} key/value heads",
                shape.heads, shape.kv_heads);
  TRIREME_CHECK(shape.window >= 0, "a window of {}", shape.window);
  reference::check_dropout(shape.dropout, shape.sequences);
}

void check_scratch(const TensorView& scratch, DType dtype, std::int64_t elements) {
  TRIREME_CHECK(scratch.dtype == dtype && scratch.elements() >= elements, "scratch of {} {}, not {} {}",
                scratch.elements(), dtype_name(scratch.dtype), elements, dtype_name(dtype));
}

// One query row of one head: where its numbers stand.
struct Query {
  std::int64_t sequence_index;
  std::int64_t position;   // and last key seen
  std::int64_t first_key;  // seen
  std::int64_t head;
  std::int64_t row;        // of q
  std::int64_t column;     // of q: the head's first
  std::int64_t first_row;  // of k and v: the sequence's first token
  std::int64_t kv_column;  // of k and v: the shared head's first
};

std::int64_t first_key(const AttentionShape& shape, std::int64_t position) {
  return shape.window == 0 ? 0 : std::max<std::int64_t>(0, position - shape.window + 1);
}

template <class Function>
void for_each_query(const AttentionShape& shape, Function&& function) {
  const std::int64_t heads_a_group = shape.heads / shape.kv_heads;
  for (std::int64_t i = 0; i < shape.sequences; ++i) {
    for (std::int64_t head = 0; head < shape.heads; ++head) {
      for (std::int64_t position = 0; position < shape.sequence; ++position) {
        function(Query{.sequence_index = i,
                       .position = position,
                       .first_key = first_key(shape, position),
                       .head = head,
                       .row = i * shape.sequence + position,
                       .column = head * shape.head_dim,
                       .first_row = i * shape.sequence,
                       .kv_column = head / heads_a_group * shape.head_dim});
      }
    }
  }
}

template <class T>
T dot(Matrix<const T> a, std::int64_t a_row, std::int64_t a_column, Matrix<const T> b, std::int64_t b_row,
      std::int64_t b_column, std::int64_t size) {
  T sum = 0;
  for (std::int64_t j = 0; j < size; ++j) sum += a(a_row, a_column + j) * b(b_row, b_column + j);
  return sum;
}

template <class T>
T score(const AttentionShape& shape, const Query& query, Matrix<const T> q, Matrix<const T> k, std::int64_t key) {
  return static_cast<T>(shape.scale) *
         dot(q, query.row, query.column, k, query.first_row + key, query.kv_column, shape.head_dim);
}

template <class T>
T probability_factor(const AttentionShape& shape, const Query& query, std::int64_t key) {
  const std::int64_t element =
      ((shape.head_begin + query.head) * shape.sequence + query.position) * shape.sequence + key;
  return reference::dropout_factor<T>(shape.dropout, query.sequence_index, element);
}

// What a product of BF16 reads of a number.
template <class T>
T as_factor(T x, bool bf16) {
  if constexpr (std::is_same_v<T, float>) {
    if (bf16) {
      std::array<std::byte, 2> raw{};
      convert_from_f32(DType::kBF16, std::span(&x, 1), raw);
      convert_to_f32(DType::kBF16, raw, std::span(&x, 1));
    }
  }
  return x;
}

template <class T>
void forward_of(const AttentionForward& work, bool bf16) {
  const AttentionShape& shape = work.shape;
  const std::int64_t tokens = shape.sequences * shape.sequence;
  const auto q = readable<T>(work.q, tokens, shape.heads * shape.head_dim, "q");
  const auto k = readable<T>(work.k, tokens, shape.kv_heads * shape.head_dim, "k");
  const auto v = readable<T>(work.v, tokens, shape.kv_heads * shape.head_dim, "v");
  const auto out = writable<T>(work.out, tokens, shape.heads * shape.head_dim, "out");
  const auto log_sum_exp = writable<T>(work.log_sum_exp, shape.sequences * shape.heads, shape.sequence, "log_sum_exp");
  check_scratch(work.scratch, work.q.dtype, attention_forward_scratch(shape.sequence, shape.head_dim));

  std::vector<T> scores(static_cast<std::size_t>(shape.sequence));
  for_each_query(shape, [&](const Query& query) {
    T maximum = -std::numeric_limits<T>::infinity();
    for (std::int64_t key = query.first_key; key <= query.position; ++key) {
      T& s = scores[static_cast<std::size_t>(key)];
      s = score(shape, query, q, k, key);
      maximum = std::max(maximum, s);
    }
    T sum = 0;
    for (std::int64_t key = query.first_key; key <= query.position; ++key) {
      sum += std::exp(scores[static_cast<std::size_t>(key)] - maximum);
    }
    const T total = maximum + std::log(sum);
    log_sum_exp(query.sequence_index * shape.heads + query.head, query.position) = total;
    for (std::int64_t j = 0; j < shape.head_dim; ++j) out(query.row, query.column + j) = 0;
    for (std::int64_t key = query.first_key; key <= query.position; ++key) {
      const T probability = std::exp(scores[static_cast<std::size_t>(key)] - total);
      const T kept = as_factor(probability * probability_factor<T>(shape, query, key), bf16);
      for (std::int64_t j = 0; j < shape.head_dim; ++j) {
        out(query.row, query.column + j) += kept * v(query.first_row + key, query.kv_column + j);
      }
    }
  });
}

// With P the probabilities, M the dropout factors, and per query row D = d_out . out = sum of P M (d_out .
// v):
//   d_v += P M d_out;  d_score = P (M (d_out . v) - D);  d_q += scale d_score k;  d_k += scale d_score q.
template <class T>
void backward_of(const AttentionBackward& work, bool bf16) {
  const AttentionShape& shape = work.shape;
  const std::int64_t tokens = shape.sequences * shape.sequence;
  const std::int64_t width = shape.heads * shape.head_dim;
  const std::int64_t kv_width = shape.kv_heads * shape.head_dim;
  const auto q = readable<T>(work.q, tokens, width, "q");
  const auto k = readable<T>(work.k, tokens, kv_width, "k");
  const auto v = readable<T>(work.v, tokens, kv_width, "v");
  const auto out = readable<T>(work.out, tokens, width, "out");
  const auto d_out = readable<T>(work.d_out, tokens, width, "d_out");
  const auto log_sum_exp = readable<T>(work.log_sum_exp, shape.sequences * shape.heads, shape.sequence, "log_sum_exp");
  const auto d_q = writable<T>(work.d_q, tokens, width, "d_q");
  const auto d_k = writable<T>(work.d_k, tokens, kv_width, "d_k");
  const auto d_v = writable<T>(work.d_v, tokens, kv_width, "d_v");
  check_scratch(work.scratch, work.q.dtype, attention_backward_scratch(shape.sequence, shape.head_dim));

  const T scale = static_cast<T>(shape.scale);
  for_each_query(shape, [&](const Query& query) {
    const T total = log_sum_exp(query.sequence_index * shape.heads + query.head, query.position);
    const T row_dot = dot(d_out, query.row, query.column, out, query.row, query.column, shape.head_dim);
    for (std::int64_t key = query.first_key; key <= query.position; ++key) {
      const std::int64_t kv_row = query.first_row + key;
      const T probability = std::exp(score(shape, query, q, k, key) - total);
      const T factor = probability_factor<T>(shape, query, key);
      const T d_kept = dot(d_out, query.row, query.column, v, kv_row, query.kv_column, shape.head_dim);
      const T kept = as_factor(probability * factor, bf16);
      const T d_score = as_factor(probability * (factor * d_kept - row_dot) * scale, bf16);
      for (std::int64_t j = 0; j < shape.head_dim; ++j) {
        d_v(kv_row, query.kv_column + j) += kept * d_out(query.row, query.column + j);
        d_q(query.row, query.column + j) += d_score * k(kv_row, query.kv_column + j);
        d_k(kv_row, query.kv_column + j) += d_score * q(query.row, query.column + j);
      }
    }
  });
}

}  // namespace

void ReferenceKernels::attention_forward(const AttentionForward& given) {
  AttentionForward work = given;
  const bool bf16 = all_bf16(work.q, work.k, work.v);
  reference::Widened widened;
  widened.out(work.out);
  widened.in(work.q, work.k, work.v);
  check_shape(work.shape);
  reference::with_type(work.q.dtype, [&](auto zero) { forward_of<decltype(zero)>(work, bf16); });
}

void ReferenceKernels::attention_backward(const AttentionBackward& given) {
  AttentionBackward work = given;
  const bool bf16 = all_bf16(work.q, work.k, work.v, work.d_out);
  reference::Widened widened;
  widened.out(work.d_q, work.d_k, work.d_v);
  widened.in(work.q, work.k, work.v, work.out, work.d_out);
  check_shape(work.shape);
  fill(work.d_q, 0.0);
  fill(work.d_k, 0.0);
  fill(work.d_v, 0.0);
  reference::with_type(work.q.dtype, [&](auto zero) { backward_of<decltype(zero)>(work, bf16); });
}

}  // namespace trireme::kernels
