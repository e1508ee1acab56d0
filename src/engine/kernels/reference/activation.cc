#include <cmath>

#include "engine/kernels/reference/access.h"
#include "engine/kernels/reference/reference_kernels.h"
#include "engine/kernels/reference/widened.h"

namespace trireme::kernels {
namespace {

using reference::Matrix;
using reference::readable;
using reference::with_type;
using reference::writable;

constexpr double kSqrtTwoOverPi = 0.79788456080286535588;
constexpr double kGeluCubic = 0.044715;

template <class T>
T sigmoid(T x) {
  return T{1} / (T{1} + std::exp(-x));
}

// tanh of the argument of the tanh approximation of GELU (Hendrycks and Gimpel, 2016).
template <class T>
T gelu_tanh(T x) {
  return std::tanh(static_cast<T>(kSqrtTwoOverPi) * (x + static_cast<T>(kGeluCubic) * x * x * x));
}

template <class T>
T activate(ActivationType type, T x) {
  switch (type) {
    case ActivationType::kGeluTanh:
      return T{0.5} * x * (T{1} + gelu_tanh(x));
    case ActivationType::kSilu:
      return x * sigmoid(x);
    case ActivationType::kRelu:
      return x > T{0} ? x : T{0};
  }
  TRIREME_CHECK(false, "activation {}", static_cast<int>(type));
  return x;
}

template <class T>
T slope(ActivationType type, T x) {
  switch (type) {
    case ActivationType::kGeluTanh: {
      const T h = gelu_tanh(x);
      const T inner = static_cast<T>(kSqrtTwoOverPi) * (T{1} + T{3} * static_cast<T>(kGeluCubic) * x * x);
      return T{0.5} * (T{1} + h) + T{0.5} * x * (T{1} - h * h) * inner;
    }
    case ActivationType::kSilu: {
      const T s = sigmoid(x);
      return s * (T{1} + x * (T{1} - s));
    }
    case ActivationType::kRelu:
      return x > T{0} ? T{1} : T{0};
  }
  TRIREME_CHECK(false, "activation {}", static_cast<int>(type));
  return x;
}

}  // namespace

void ReferenceKernels::activation_forward(ActivationType type, ConstTensorView gate, ConstTensorView up,
                                          TensorView out) {
  reference::Widened widened;
  widened.out(out);
  widened.in(gate, up);
  with_type(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    const bool gated = !gate.empty();
    const auto g = gated ? readable<T>(gate, out.rows, out.columns, "gate") : Matrix<const T>{};
    const auto u = readable<T>(up, out.rows, out.columns, "up");
    const auto result = writable<T>(out, out.rows, out.columns, "out");
    for (std::int64_t t = 0; t < out.rows; ++t) {
      for (std::int64_t j = 0; j < out.columns; ++j) {
        result(t, j) = gated ? activate(type, g(t, j)) * u(t, j) : activate(type, u(t, j));
      }
    }
  });
}

void ReferenceKernels::activation_backward(ActivationType type, ConstTensorView d_out, ConstTensorView gate,
                                           ConstTensorView up, TensorView d_gate, TensorView d_up) {
  reference::Widened widened;
  widened.out(d_gate, d_up);
  widened.in(d_out, gate, up);
  TRIREME_CHECK(gate.empty() == d_gate.empty(), "gate and its gradient go together");
  with_type(d_out.dtype, [&](auto zero) {
    using T = decltype(zero);
    const bool gated = !gate.empty();
    const auto d = readable<T>(d_out, d_out.rows, d_out.columns, "d_out");
    const auto g = gated ? readable<T>(gate, d_out.rows, d_out.columns, "gate") : Matrix<const T>{};
    const auto u = readable<T>(up, d_out.rows, d_out.columns, "up");
    const auto d_g = gated ? writable<T>(d_gate, d_out.rows, d_out.columns, "d_gate") : Matrix<T>{};
    const auto d_u = writable<T>(d_up, d_out.rows, d_out.columns, "d_up");
    for (std::int64_t t = 0; t < d_out.rows; ++t) {
      for (std::int64_t j = 0; j < d_out.columns; ++j) {
        const T gradient = d(t, j);
        if (gated) {
          d_g(t, j) = gradient * u(t, j) * slope(type, g(t, j));
          d_u(t, j) = gradient * activate(type, g(t, j));
        } else {
          d_u(t, j) = gradient * slope(type, u(t, j));
        }
      }
    }
  });
}

}  // namespace trireme::kernels
