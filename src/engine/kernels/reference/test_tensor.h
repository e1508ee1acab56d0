#pragma once

// Host tensors for the tests of kernels, and gradients by differences.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"
#include "engine/kernels/reference/access.h"
#include "engine/kernels/tensor.h"

namespace trireme::kernels {

template <class T>
struct TestTensor {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<T> values;

  TestTensor(std::int64_t r, std::int64_t c, T value = T{0})
      : rows(r), columns(c), values(static_cast<std::size_t>(r * c), value) {}
  // Normal(0, 1) numbers, rounded to T: the same for every T.
  static TestTensor random(std::int64_t rows, std::int64_t columns, std::string_view name) {
    TestTensor tensor(rows, columns);
    const RandomKey key{1, stream_of("test", name)};
    for (std::size_t i = 0; i < tensor.values.size(); ++i) {
      tensor.values[i] = static_cast<T>(random_normal(key, i));
    }
    return tensor;
  }

  T& operator()(std::int64_t row, std::int64_t column) {
    return values[static_cast<std::size_t>(row * columns + column)];
  }
  T operator()(std::int64_t row, std::int64_t column) const {
    return values[static_cast<std::size_t>(row * columns + column)];
  }
  TensorView view() {
    return make_view(reinterpret_cast<std::byte*>(values.data()), reference::dtype_of<T>(), rows, columns);
  }
  ConstTensorView view() const {
    return make_view(reinterpret_cast<const std::byte*>(values.data()), reference::dtype_of<T>(), rows, columns);
  }
};

// The sum of weights * values: a scalar whose gradient by `values` is `weights`.
inline double weighted_sum(const TestTensor<double>& weights, const TestTensor<double>& values) {
  double sum = 0;
  for (std::size_t i = 0; i < values.values.size(); ++i) sum += weights.values[i] * values.values[i];
  return sum;
}

inline double largest(const TestTensor<double>& tensor) {
  double result = 0;
  for (double value : tensor.values) result = std::max(result, std::abs(value));
  return result;
}

// Compares `gradient` with the fourth-order central differences of function() by each element of `input`.
inline void expect_gradient(TestTensor<double>& input, const TestTensor<double>& gradient,
                            const std::function<double()>& function, double tolerance = 1e-8) {
  constexpr double kStep = 1e-3;
  ASSERT_EQ(input.values.size(), gradient.values.size());
  const double scale = std::max(largest(gradient), 1e-3);
  for (std::size_t i = 0; i < input.values.size(); ++i) {
    const double at = input.values[i];
    const auto value_at = [&](double x) {
      input.values[i] = x;
      return function();
    };
    const double near = value_at(at + kStep) - value_at(at - kStep);
    const double far = value_at(at + 2 * kStep) - value_at(at - 2 * kStep);
    input.values[i] = at;
    const double numeric = (8 * near - far) / (12 * kStep);
    ASSERT_NEAR(gradient.values[i], numeric, tolerance * scale) << "element " << i;
  }
}

}  // namespace trireme::kernels
