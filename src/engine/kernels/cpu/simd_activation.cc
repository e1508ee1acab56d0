#include "engine/kernels/cpu/simd.h"
#include "engine/kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/cpu/simd_activation.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace trireme::kernels::simd::HWY_NAMESPACE {
namespace {

// sqrt(2 / pi) and the cubic term of the tanh form of GELU (Hendrycks and Gimpel 2016).
constexpr float kGeluScale = 0.7978845608028654f;
constexpr float kGeluCubic = 0.044715f;

HWY_INLINE Vector sigmoid(Vector x) { return hn::Div(set(1.0f), hn::Add(set(1.0f), exponential(hn::Neg(x)))); }
// tanh(u) = 2 sigmoid(2 u) - 1.
HWY_INLINE Vector gelu_tanh(Vector x) {
  const Vector cubic = hn::Mul(hn::Mul(x, x), hn::Mul(x, set(kGeluCubic)));
  const Vector u = hn::Mul(hn::Add(x, cubic), set(2.0f * kGeluScale));
  return hn::Sub(hn::Mul(sigmoid(u), set(2.0f)), set(1.0f));
}

// A function and its derivative at x.
struct Value {
  Vector value;
  Vector slope;
};

struct GeluTanh {
  static HWY_INLINE Vector value(Vector x) { return hn::Mul(hn::Mul(x, set(0.5f)), hn::Add(set(1.0f), gelu_tanh(x))); }
  static HWY_INLINE Value both(Vector x) {
    const Vector t = gelu_tanh(x);
    const Vector half = hn::Mul(set(0.5f), hn::Add(set(1.0f), t));
    const Vector inner = hn::Mul(set(kGeluScale), hn::MulAdd(hn::Mul(x, x), set(3.0f * kGeluCubic), set(1.0f)));
    const Vector rise = hn::Mul(hn::Mul(hn::Mul(x, set(0.5f)), hn::NegMulAdd(t, t, set(1.0f))), inner);
    return {hn::Mul(x, half), hn::Add(half, rise)};
  }
};
struct Silu {
  static HWY_INLINE Vector value(Vector x) { return hn::Mul(x, sigmoid(x)); }
  static HWY_INLINE Value both(Vector x) {
    const Vector s = sigmoid(x);
    return {hn::Mul(x, s), hn::Mul(s, hn::MulAdd(x, hn::Sub(set(1.0f), s), set(1.0f)))};
  }
};
struct Relu {
  static HWY_INLINE Vector value(Vector x) { return hn::Max(x, zero()); }
  static HWY_INLINE Value both(Vector x) {
    return {hn::Max(x, zero()), hn::IfThenElseZero(hn::Gt(x, zero()), set(1.0f))};
  }
};

template <class F, class Number>
HWY_INLINE void forward(const Number* gate, const Number* up, Number* out, std::int64_t n) {
  for_vectors(n, [&](std::size_t i, auto access) TRIREME_SIMD {
    const Vector u = access.load(up + i);
    access.store(gate == nullptr ? F::value(u) : hn::Mul(F::value(access.load(gate + i)), u), out + i);
  });
}

template <class F, class Number>
HWY_INLINE void backward(const Number* d_out, const Number* gate, const Number* up, Number* d_gate, Number* d_up,
                         std::int64_t n) {
  for_vectors(n, [&](std::size_t i, auto access) TRIREME_SIMD {
    const Vector d = access.load(d_out + i);
    const Vector u = access.load(up + i);
    if (gate == nullptr) {
      access.store(hn::Mul(d, F::both(u).slope), d_up + i);
      return;
    }
    const Value g = F::both(access.load(gate + i));
    access.store(hn::Mul(hn::Mul(d, u), g.slope), d_gate + i);
    access.store(hn::Mul(d, g.value), d_up + i);
  });
}

template <class Number>
HWY_INLINE void forward_of(ActivationType type, const Number* gate, const Number* up, Number* out, std::int64_t n) {
  switch (type) {
    case ActivationType::kGeluTanh:
      return forward<GeluTanh>(gate, up, out, n);
    case ActivationType::kSilu:
      return forward<Silu>(gate, up, out, n);
    case ActivationType::kRelu:
      return forward<Relu>(gate, up, out, n);
  }
}

template <class Number>
HWY_INLINE void backward_of(ActivationType type, const Number* d_out, const Number* gate, const Number* up,
                            Number* d_gate, Number* d_up, std::int64_t n) {
  switch (type) {
    case ActivationType::kGeluTanh:
      return backward<GeluTanh>(d_out, gate, up, d_gate, d_up, n);
    case ActivationType::kSilu:
      return backward<Silu>(d_out, gate, up, d_gate, d_up, n);
    case ActivationType::kRelu:
      return backward<Relu>(d_out, gate, up, d_gate, d_up, n);
  }
}

void forward_f32(ActivationType type, const float* gate, const float* up, float* out, std::int64_t n) {
  forward_of(type, gate, up, out, n);
}
void forward_bf16(ActivationType type, const BFloat* gate, const BFloat* up, BFloat* out, std::int64_t n) {
  forward_of(type, gate, up, out, n);
}
void backward_f32(ActivationType type, const float* d_out, const float* gate, const float* up, float* d_gate,
                  float* d_up, std::int64_t n) {
  backward_of(type, d_out, gate, up, d_gate, d_up, n);
}
void backward_bf16(ActivationType type, const BFloat* d_out, const BFloat* gate, const BFloat* up, BFloat* d_gate,
                   BFloat* d_up, std::int64_t n) {
  backward_of(type, d_out, gate, up, d_gate, d_up, n);
}

}  // namespace
}  // namespace trireme::kernels::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trireme::kernels::simd {

HWY_EXPORT(forward_f32);
HWY_EXPORT(forward_bf16);
HWY_EXPORT(backward_f32);
HWY_EXPORT(backward_bf16);

void activation_forward(ActivationType type, const float* gate, const float* up, float* out, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(forward_f32)(type, gate, up, out, n);
}
void activation_forward(ActivationType type, const BFloat* gate, const BFloat* up, BFloat* out, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(forward_bf16)(type, gate, up, out, n);
}
void activation_backward(ActivationType type, const float* d_out, const float* gate, const float* up, float* d_gate,
                         float* d_up, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(backward_f32)(type, d_out, gate, up, d_gate, d_up, n);
}
void activation_backward(ActivationType type, const BFloat* d_out, const BFloat* gate, const BFloat* up, BFloat* d_gate,
                         BFloat* d_up, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(backward_bf16)(type, d_out, gate, up, d_gate, d_up, n);
}

}  // namespace trireme::kernels::simd
#endif
