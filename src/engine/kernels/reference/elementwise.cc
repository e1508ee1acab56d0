#include <cstring>

#include "engine/kernels/reference/access.h"
#include "engine/kernels/reference/dropout.h"
#include "engine/kernels/reference/reference_kernels.h"
#include "engine/kernels/reference/widened.h"

namespace trireme::kernels {

using reference::readable;
using reference::readable_vector;
using reference::with_type;
using reference::writable;
using reference::writable_vector;

void ReferenceKernels::add_bias(TensorView x, ConstTensorView bias) {
  reference::Widened widened;
  widened.out(x);
  widened.in(bias);
  with_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto values = writable<T>(x, x.rows, x.columns, "x");
    const auto b = readable_vector<T>(bias, x.columns, "bias");
    for (std::int64_t t = 0; t < x.rows; ++t) {
      for (std::int64_t j = 0; j < x.columns; ++j) values(t, j) += b[j];
    }
  });
}

// With accumulate the finished sum is added to what is there.
void ReferenceKernels::column_sum(ConstTensorView x, TensorView out, bool accumulate) {
  reference::Widened widened;
  widened.out(out);
  widened.in(x);
  with_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto values = readable<T>(x, x.rows, x.columns, "x");
    const auto sums = writable_vector<T>(out, x.columns, "out");
    for (std::int64_t j = 0; j < x.columns; ++j) {
      const T sum = reference::sum_of_chains<T>(x.rows, [&](std::int64_t t) { return values(t, j); });
      sums[j] = accumulate ? sums[j] + sum : sum;
    }
  });
}

void ReferenceKernels::residual_add(TensorView out, ConstTensorView residual, ConstTensorView x, ConstTensorView bias,
                                    const Dropout& dropout) {
  reference::Widened widened;
  widened.out(out);
  widened.in(residual, x, bias);
  with_type(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto result = writable<T>(out, out.rows, out.columns, "out");
    const auto r = readable<T>(residual, out.rows, out.columns, "residual");
    const auto values = readable<T>(x, out.rows, out.columns, "x");
    const bool has_bias = !bias.empty();
    const auto b = has_bias ? readable_vector<T>(bias, out.columns, "bias") : reference::Vector<const T>{};
    const reference::RowDropout mask(dropout, out.rows, out.columns);
    for (std::int64_t t = 0; t < out.rows; ++t) {
      for (std::int64_t j = 0; j < out.columns; ++j) {
        const T branch = has_bias ? values(t, j) + b[j] : values(t, j);
        result(t, j) = r(t, j) + mask.apply(branch, t, j);
      }
    }
  });
}

void ReferenceKernels::apply_dropout(TensorView out, ConstTensorView x, const Dropout& dropout) {
  reference::Widened widened;
  widened.out(out);
  widened.in(x);
  with_type(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto result = writable<T>(out, out.rows, out.columns, "out");
    const auto values = readable<T>(x, out.rows, out.columns, "x");
    const reference::RowDropout mask(dropout, out.rows, out.columns);
    for (std::int64_t t = 0; t < out.rows; ++t) {
      for (std::int64_t j = 0; j < out.columns; ++j) result(t, j) = mask.apply(values(t, j), t, j);
    }
  });
}

void ReferenceKernels::fill(TensorView x, double value) {
  reference::Widened widened;
  widened.out(x);
  with_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto values = writable<T>(x, x.rows, x.columns, "x");
    for (std::int64_t t = 0; t < x.rows; ++t) {
      for (std::int64_t j = 0; j < x.columns; ++j) values(t, j) = static_cast<T>(value);
    }
  });
}

// Of one type, whichever it is: bytes.
void ReferenceKernels::copy(ConstTensorView from, TensorView to) {
  reference::Widened widened;
  if (from.dtype != to.dtype) {
    widened.out(to);
    widened.in(from);
  }
  reference::check_view(from, to.dtype, to.rows, to.columns, "from");
  reference::check_view(to, to.dtype, to.rows, to.columns, "to");
  const std::int64_t size = dtype_size(to.dtype);
  const auto row_bytes = static_cast<std::size_t>(to.columns * size);
  if (row_bytes == 0) return;
  for (std::int64_t t = 0; t < to.rows; ++t) {
    std::memcpy(to.data + t * to.row_stride * size, from.data + t * from.row_stride * size, row_bytes);
  }
}

void ReferenceKernels::add(TensorView y, ConstTensorView x) {
  reference::Widened widened;
  widened.out(y);
  widened.in(x);
  with_type(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto sum = writable<T>(y, y.rows, y.columns, "y");
    const auto addend = readable<T>(x, y.rows, y.columns, "x");
    for (std::int64_t t = 0; t < y.rows; ++t) {
      for (std::int64_t j = 0; j < y.columns; ++j) sum(t, j) += addend(t, j);
    }
  });
}

void ReferenceKernels::scale(TensorView x, double factor) {
  reference::Widened widened;
  widened.out(x);
  with_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto values = writable<T>(x, x.rows, x.columns, "x");
    for (std::int64_t t = 0; t < x.rows; ++t) {
      for (std::int64_t j = 0; j < x.columns; ++j) values(t, j) *= static_cast<T>(factor);
    }
  });
}

}  // namespace trireme::kernels
