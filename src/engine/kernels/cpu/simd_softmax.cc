#include "engine/kernels/cpu/simd.h"
#include "engine/kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/cpu/simd_softmax.cc"
#include <limits>

#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace trireme::kernels::simd::HWY_NAMESPACE {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

float scaled_maximum(const float* x, float factor, std::int64_t n) {
  const Vector most = reduce_vectors(
      n, set(kLowest),
      [&](std::size_t i, auto access, Vector m) TRIREME_SIMD {
        // A lane that is not there counts as the lowest: padding times the factor would be an infinity of either sign.
        return hn::Max(m, hn::Mul(access.load_or(x + i, x[i]), set(factor)));
      },
      [](Vector a, Vector b) TRIREME_SIMD { return hn::Max(a, b); });
  return hn::GetLane(hn::MaxOfLanes(Floats(), most));
}

float exponential_sum(const float* x, float maximum, std::int64_t n) {
  return sum_vectors(n, [&](std::size_t i, auto access) TRIREME_SIMD {
    return exponential(hn::Sub(access.load_or(x + i, kLowest), set(maximum)));
  });
}

float exponentials(float* x, float factor, float maximum, std::int64_t n) {
  return sum_vectors(n, [&](std::size_t i, auto access) TRIREME_SIMD {
    const Vector value = exponential(hn::MulSub(access.load_or(x + i, kLowest), set(factor), set(maximum)));
    access.store(value, x + i);
    return value;
  });
}

void softmax_gradient(float* x, float maximum, float total, float factor, std::int64_t target, std::int64_t n) {
  const float target_logit = target >= 0 && target < n ? x[target] : 0.0f;
  const float each = factor / total;
  for_vectors(n, [&](std::size_t i, auto access) TRIREME_SIMD {
    access.store(hn::Mul(exponential(hn::Sub(access.load(x + i), set(maximum))), set(each)), x + i);
  });
  if (target < 0 || target >= n) return;
  const float exponent = hn::GetLane(exponential(set(target_logit - maximum)));
  x[target] = (exponent / total - 1.0f) * factor;
}

void attention_gradient(float* scores, float* products, float factor, float log_sum_exp, float row_dot,
                        const float* factors, std::int64_t n) {
  for_vectors(n, [&](std::size_t i, auto access) TRIREME_SIMD {
    const Vector p = exponential(hn::MulSub(access.load(scores + i), set(factor), set(log_sum_exp)));
    Vector product = access.load(products + i);
    Vector kept = p;
    if (factors != nullptr) {
      const Vector f = access.load(factors + i);
      product = hn::Mul(product, f);
      kept = hn::Mul(p, f);
    }
    access.store(kept, scores + i);
    access.store(hn::Mul(hn::Mul(p, hn::Sub(product, set(row_dot))), set(factor)), products + i);
  });
}

}  // namespace
}  // namespace trireme::kernels::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trireme::kernels::simd {

HWY_EXPORT(scaled_maximum);
HWY_EXPORT(exponential_sum);
HWY_EXPORT(exponentials);
HWY_EXPORT(softmax_gradient);
HWY_EXPORT(attention_gradient);

float scaled_maximum(const float* x, float factor, std::int64_t n) {
  return HWY_DYNAMIC_DISPATCH(scaled_maximum)(x, factor, n);
}
float exponential_sum(const float* x, float maximum, std::int64_t n) {
  return HWY_DYNAMIC_DISPATCH(exponential_sum)(x, maximum, n);
}
float exponentials(float* x, float factor, float maximum, std::int64_t n) {
  return HWY_DYNAMIC_DISPATCH(exponentials)(x, factor, maximum, n);
}
void softmax_gradient(float* x, float maximum, float total, float factor, std::int64_t target, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(softmax_gradient)(x, maximum, total, factor, target, n);
}
void attention_gradient(float* scores, float* products, float factor, float log_sum_exp, float row_dot,
                        const float* factors, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(attention_gradient)(scores, products, factor, log_sum_exp, row_dot, factors, n);
}

}  // namespace trireme::kernels::simd
#endif
