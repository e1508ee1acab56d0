#include <cmath>

#include "engine/kernels/reference/access.h"
#include "engine/kernels/reference/reference_kernels.h"
#include "engine/kernels/reference/widened.h"

namespace trireme::kernels {
namespace {

using reference::Matrix;
using reference::readable;
using reference::readable_vector;
using reference::Vector;
using reference::with_type;
using reference::writable;
using reference::writable_vector;

template <class T>
T mean_of_row(Matrix<const T> x, std::int64_t t) {
  T sum = 0;
  for (std::int64_t j = 0; j < x.columns; ++j) sum += x(t, j);
  return sum / static_cast<T>(x.columns);
}

template <class T>
T mean_square_of_row(Matrix<const T> x, std::int64_t t, T mean) {
  T sum = 0;
  for (std::int64_t j = 0; j < x.columns; ++j) sum += (x(t, j) - mean) * (x(t, j) - mean);
  return sum / static_cast<T>(x.columns);
}

// x normalised. The mean of an RMS norm's stats is zero, so one formula serves both.
template <class T>
T normalised(Matrix<const T> x, Matrix<const T> stats, std::int64_t t, std::int64_t j) {
  return (x(t, j) - stats(t, 0)) * stats(t, 1);
}

}  // namespace

void ReferenceKernels::norm_forward(NormType type, ConstTensorView x, ConstTensorView weight, ConstTensorView bias,
                                    double epsilon, TensorView y, TensorView stats) {
  reference::Widened widened;
  widened.out(y);
  widened.in(x, weight, bias);
  with_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto values = readable<T>(x, x.rows, x.columns, "x");
    const auto s = writable<T>(stats, x.rows, 2, "stats");
    for (std::int64_t t = 0; t < x.rows; ++t) {
      const T mean = type == NormType::kLayerNorm ? mean_of_row(values, t) : T{0};
      s(t, 0) = mean;
      s(t, 1) = T{1} / std::sqrt(mean_square_of_row(values, t, mean) + static_cast<T>(epsilon));
    }
  });
  norm_apply(type, x, stats, weight, bias, y);
}

void ReferenceKernels::norm_apply(NormType type, ConstTensorView x, ConstTensorView stats, ConstTensorView weight,
                                  ConstTensorView bias, TensorView y) {
  reference::Widened widened;
  widened.out(y);
  widened.in(x, weight, bias);
  TRIREME_CHECK(type == NormType::kLayerNorm || bias.empty(), "an RMS norm has no bias");
  with_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto values = readable<T>(x, x.rows, x.columns, "x");
    const auto s = readable<T>(stats, x.rows, 2, "stats");
    const auto w = readable_vector<T>(weight, x.columns, "weight");
    const bool has_bias = !bias.empty();
    const auto b = has_bias ? readable_vector<T>(bias, x.columns, "bias") : Vector<const T>{};
    const auto result = writable<T>(y, x.rows, x.columns, "y");
    for (std::int64_t t = 0; t < x.rows; ++t) {
      for (std::int64_t j = 0; j < x.columns; ++j) {
        const T scaled = normalised(values, s, t, j) * w[j];
        result(t, j) = has_bias ? scaled + b[j] : scaled;
      }
    }
  });
}

// With n = normalised x and g = d_y weight:  d_x = addend + r (g - mean(g) - n mean(g n)), without mean(g)
// for RMS.
void ReferenceKernels::norm_backward_input(NormType type, ConstTensorView d_y, ConstTensorView x, ConstTensorView stats,
                                           ConstTensorView weight, ConstTensorView addend, TensorView d_x) {
  reference::Widened widened;
  widened.out(d_x);
  widened.in(d_y, x, weight, addend);
  with_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto gradient = readable<T>(d_y, x.rows, x.columns, "d_y");
    const auto values = readable<T>(x, x.rows, x.columns, "x");
    const auto s = readable<T>(stats, x.rows, 2, "stats");
    const auto w = readable_vector<T>(weight, x.columns, "weight");
    const bool has_addend = !addend.empty();
    const auto added = has_addend ? readable<T>(addend, x.rows, x.columns, "addend") : Matrix<const T>{};
    const auto result = writable<T>(d_x, x.rows, x.columns, "d_x");
    for (std::int64_t t = 0; t < x.rows; ++t) {
      T sum = 0;
      T product_sum = 0;
      for (std::int64_t j = 0; j < x.columns; ++j) {
        const T g = gradient(t, j) * w[j];
        sum += g;
        product_sum += g * normalised(values, s, t, j);
      }
      const T mean = type == NormType::kLayerNorm ? sum / static_cast<T>(x.columns) : T{0};
      const T product_mean = product_sum / static_cast<T>(x.columns);
      for (std::int64_t j = 0; j < x.columns; ++j) {
        const T g = gradient(t, j) * w[j];
        const T own = s(t, 1) * (g - mean - normalised(values, s, t, j) * product_mean);
        result(t, j) = has_addend ? added(t, j) + own : own;
      }
    }
  });
}

void ReferenceKernels::norm_backward_weight(NormType type, ConstTensorView d_y, ConstTensorView x,
                                            ConstTensorView stats, TensorView d_weight, TensorView d_bias,
                                            bool accumulate) {
  reference::Widened widened;
  widened.out(d_weight, d_bias);
  widened.in(d_y, x);
  TRIREME_CHECK(type == NormType::kLayerNorm || d_bias.empty(), "an RMS norm has no bias");
  with_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto gradient = readable<T>(d_y, x.rows, x.columns, "d_y");
    const auto values = readable<T>(x, x.rows, x.columns, "x");
    const auto s = readable<T>(stats, x.rows, 2, "stats");
    const auto d_w = writable_vector<T>(d_weight, x.columns, "d_weight");
    for (std::int64_t j = 0; j < x.columns; ++j) {
      const T sum = reference::sum_of_chains<T>(
          x.rows, [&](std::int64_t t) { return gradient(t, j) * normalised(values, s, t, j); });
      d_w[j] = accumulate ? d_w[j] + sum : sum;
    }
  });
  if (!d_bias.empty()) column_sum(d_y, d_bias, accumulate);
}

}  // namespace trireme::kernels
