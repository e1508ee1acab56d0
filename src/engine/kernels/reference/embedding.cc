#include "engine/kernels/reference/access.h"
#include "engine/kernels/reference/reference_kernels.h"
#include "engine/kernels/reference/widened.h"

namespace trireme::kernels {

using reference::readable;
using reference::with_type;
using reference::writable;

void ReferenceKernels::embedding_forward(std::span<const std::int32_t> ids, ConstTensorView table,
                                         std::int64_t row_begin, TensorView out) {
  reference::Widened widened;
  widened.out(out);
  widened.in(table);
  with_type(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto rows = readable<T>(table, table.rows, table.columns, "table");
    const auto result = writable<T>(out, static_cast<std::int64_t>(ids.size()), table.columns, "out");
    for (std::int64_t t = 0; t < result.rows; ++t) {
      const std::int64_t row = ids[static_cast<std::size_t>(t)] - row_begin;
      const bool here = row >= 0 && row < rows.rows;
      for (std::int64_t j = 0; j < result.columns; ++j) result(t, j) = here ? rows(row, j) : T{0};
    }
  });
}

void ReferenceKernels::embedding_backward(std::span<const std::int32_t> ids, ConstTensorView d_out,
                                          std::int64_t row_begin, TensorView d_table, bool accumulate) {
  reference::Widened widened;
  widened.out(d_table);
  widened.in(d_out);
  if (!accumulate) fill(d_table, 0.0);
  with_type(d_table.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto rows = writable<T>(d_table, d_table.rows, d_table.columns, "d_table");
    const auto gradient = readable<T>(d_out, static_cast<std::int64_t>(ids.size()), d_table.columns, "d_out");
    for (std::int64_t t = 0; t < gradient.rows; ++t) {
      const std::int64_t row = ids[static_cast<std::size_t>(t)] - row_begin;
      if (row < 0 || row >= rows.rows) continue;
      for (std::int64_t j = 0; j < rows.columns; ++j) rows(row, j) += gradient(t, j);
    }
  });
}

void ReferenceKernels::position_forward(ConstTensorView table, std::int64_t sequence, TensorView out) {
  reference::Widened widened;
  widened.out(out);
  widened.in(table);
  TRIREME_CHECK(sequence > 0 && sequence <= table.rows, "{} positions of {}", sequence, table.rows);
  TRIREME_CHECK_EQ(out.rows % sequence, 0);
  with_type(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto rows = readable<T>(table, table.rows, table.columns, "table");
    const auto result = writable<T>(out, out.rows, table.columns, "out");
    for (std::int64_t t = 0; t < result.rows; ++t) {
      for (std::int64_t j = 0; j < result.columns; ++j) result(t, j) += rows(t % sequence, j);
    }
  });
}

void ReferenceKernels::position_backward(ConstTensorView d_out, std::int64_t sequence, TensorView d_table,
                                         bool accumulate) {
  reference::Widened widened;
  widened.out(d_table);
  widened.in(d_out);
  TRIREME_CHECK(sequence > 0 && sequence <= d_table.rows, "{} positions of {}", sequence, d_table.rows);
  TRIREME_CHECK_EQ(d_out.rows % sequence, 0);
  with_type(d_table.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto rows = writable<T>(d_table, d_table.rows, d_table.columns, "d_table");
    const auto gradient = readable<T>(d_out, d_out.rows, d_table.columns, "d_out");
    for (std::int64_t p = 0; p < rows.rows; ++p) {
      for (std::int64_t j = 0; j < rows.columns; ++j) {
        T sum = 0;
        if (p < sequence) {
          for (std::int64_t t = p; t < gradient.rows; t += sequence) sum += gradient(t, j);
        }
        rows(p, j) = accumulate ? rows(p, j) + sum : sum;
      }
    }
  });
}

void ReferenceKernels::rotary(TensorView x, std::int64_t heads, std::int64_t head_dim, ConstTensorView table,
                              std::int64_t sequence, bool inverse) {
  reference::Widened widened;
  widened.out(x);
  TRIREME_CHECK(!x.empty(), "x has no memory");
  TRIREME_CHECK(heads > 0 && head_dim > 0 && head_dim % 2 == 0, "{} heads of {}", heads, head_dim);
  TRIREME_CHECK_GT(sequence, 0);
  with_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto values = writable<T>(x, x.rows, heads * head_dim, "x");
    const auto turns = readable<T>(table, sequence, head_dim, "table");
    const std::int64_t half = head_dim / 2;
    for (std::int64_t t = 0; t < values.rows; ++t) {
      for (std::int64_t head = 0; head < heads; ++head) {
        for (std::int64_t j = 0; j < half; ++j) {
          const T cosine = turns(t % sequence, j);
          const T sine = inverse ? -turns(t % sequence, half + j) : turns(t % sequence, half + j);
          T& first = values(t, head * head_dim + j);
          T& second = values(t, head * head_dim + half + j);
          const T a = first;
          const T b = second;
          first = a * cosine - b * sine;
          second = b * cosine + a * sine;
        }
      }
    }
  });
}

}  // namespace trireme::kernels
