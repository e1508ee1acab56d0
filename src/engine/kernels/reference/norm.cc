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
T square_sum_of_row(Matrix<const T> x, std::int64_t t, T mean) {
  T sum = 0;
  for (std::int64_t j = 0; j < x.columns; ++j) sum += (x(t, j) - mean) * (x(t, j) - mean);
  return sum;
}

template <class T>
T inverse_deviation(T square_sum, std::int64_t columns, double epsilon) {
  return T{1} / std::sqrt(square_sum / static_cast<T>(columns) + static_cast<T>(epsilon));
}

// x normalised. The mean of an RMS norm's stats is zero, so one formula serves both.
template <class T>
T normalised(Matrix<const T> x, Matrix<const T> stats, std::int64_t t, std::int64_t j) {
  return (x(t, j) - stats(t, 0)) * stats(t, 1);
}

// What multiplies column j.
template <class T>
T factor(NormType type, Vector<const T> weight, std::int64_t j) {
  return type == NormType::kRmsNormOffset ? T{1} + weight[j] : weight[j];
}

// The operands of a gradient. With n = normalised x and g = d_y factor:
//   d_x = addend + r (g - mean(g) - n mean(g n)), without mean(g) for RMS.
template <class T>
struct Gradient {
  NormType type;
  Matrix<const T> d_y, x, stats;
  Vector<const T> weight;

  Gradient(NormType norm_type, const ConstTensorView& d_y_view, const ConstTensorView& x_view,
           const ConstTensorView& stats_view, const ConstTensorView& weight_view)
      : type(norm_type),
        d_y(readable<T>(d_y_view, x_view.rows, x_view.columns, "d_y")),
        x(readable<T>(x_view, x_view.rows, x_view.columns, "x")),
        stats(readable<T>(stats_view, x_view.rows, 2, "stats")),
        weight(readable_vector<T>(weight_view, x_view.columns, "weight")) {}

  T g(std::int64_t t, std::int64_t j) const { return d_y(t, j) * factor(type, weight, j); }
  T n(std::int64_t t, std::int64_t j) const { return normalised(x, stats, t, j); }
  T sum(std::int64_t t) const {
    T total = 0;
    for (std::int64_t j = 0; j < x.columns; ++j) total += g(t, j);
    return total;
  }
  T dot(std::int64_t t) const {
    T total = 0;
    for (std::int64_t j = 0; j < x.columns; ++j) total += g(t, j) * n(t, j);
    return total;
  }
  // d_x of a row from these means.
  void write(std::int64_t t, T mean, T mean_dot, const Matrix<const T>& addend, const Matrix<T>& d_x) const {
    for (std::int64_t j = 0; j < x.columns; ++j) {
      const T own = stats(t, 1) * (g(t, j) - mean - n(t, j) * mean_dot);
      d_x(t, j) = addend.data != nullptr ? addend(t, j) + own : own;
    }
  }
};

// Empty where the view is.
template <class T>
Matrix<const T> addend_of(const ConstTensorView& addend, const ConstTensorView& x) {
  return addend.empty() ? Matrix<const T>{} : readable<T>(addend, x.rows, x.columns, "addend");
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
      s(t, 1) = inverse_deviation(square_sum_of_row(values, t, mean), x.columns, epsilon);
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
        const T scaled = normalised(values, s, t, j) * factor(type, w, j);
        result(t, j) = has_bias ? scaled + b[j] : scaled;
      }
    }
  });
}

void ReferenceKernels::norm_backward_input(NormType type, ConstTensorView d_y, ConstTensorView x, ConstTensorView stats,
                                           ConstTensorView weight, ConstTensorView addend, TensorView d_x) {
  reference::Widened widened;
  widened.out(d_x);
  widened.in(d_y, x, weight, addend);
  with_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Gradient<T> gradient(type, d_y, x, stats, weight);
    const auto added = addend_of<T>(addend, x);
    const auto result = writable<T>(d_x, x.rows, x.columns, "d_x");
    const auto n = static_cast<T>(x.columns);
    for (std::int64_t t = 0; t < x.rows; ++t) {
      const T mean = type == NormType::kLayerNorm ? gradient.sum(t) / n : T{0};
      gradient.write(t, mean, gradient.dot(t) / n, added, result);
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

void ReferenceKernels::row_square_sums(ConstTensorView x, TensorView sums) {
  reference::Widened widened;
  widened.in(x);
  with_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto values = readable<T>(x, x.rows, x.columns, "x");
    const auto result = writable_vector<T>(sums, x.rows, "sums");
    for (std::int64_t t = 0; t < x.rows; ++t) result[t] = square_sum_of_row(values, t, T{0});
  });
}

void ReferenceKernels::stats_of_square_sums(ConstTensorView sums, std::int64_t columns_total, double epsilon,
                                            TensorView stats) {
  TRIREME_CHECK_GT(columns_total, 0);
  with_type(stats.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto s = writable<T>(stats, stats.rows, 2, "stats");
    const auto squares = readable_vector<T>(sums, stats.rows, "sums");
    for (std::int64_t t = 0; t < stats.rows; ++t) {
      s(t, 0) = T{0};
      s(t, 1) = inverse_deviation(squares[t], columns_total, epsilon);
    }
  });
}

void ReferenceKernels::norm_row_dots(ConstTensorView d_y, ConstTensorView x, ConstTensorView stats,
                                     ConstTensorView weight, TensorView dots) {
  reference::Widened widened;
  widened.in(d_y, x, weight);
  with_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Gradient<T> gradient(NormType::kRmsNorm, d_y, x, stats, weight);
    const auto result = writable_vector<T>(dots, x.rows, "dots");
    for (std::int64_t t = 0; t < x.rows; ++t) result[t] = gradient.dot(t);
  });
}

void ReferenceKernels::norm_backward_input_of_dots(ConstTensorView d_y, ConstTensorView x, ConstTensorView stats,
                                                   ConstTensorView weight, ConstTensorView dots,
                                                   std::int64_t columns_total, ConstTensorView addend, TensorView d_x) {
  reference::Widened widened;
  widened.out(d_x);
  widened.in(d_y, x, weight, addend);
  TRIREME_CHECK_GE(columns_total, x.columns);
  with_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Gradient<T> gradient(NormType::kRmsNorm, d_y, x, stats, weight);
    const auto sums = readable_vector<T>(dots, x.rows, "dots");
    const auto added = addend_of<T>(addend, x);
    const auto result = writable<T>(d_x, x.rows, x.columns, "d_x");
    for (std::int64_t t = 0; t < x.rows; ++t) {
      gradient.write(t, T{0}, sums[t] / static_cast<T>(columns_total), added, result);
    }
  });
}

}  // namespace trireme::kernels
