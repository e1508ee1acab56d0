#include "engine/kernels/cpu/simd.h"
#include "engine/kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/cpu/simd_optimizer.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace trireme::kernels::simd::HWY_NAMESPACE {
namespace {

// m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;  w = (1 - lr decay) w - lr (m / c1) / (sqrt(v / c2) + epsilon).
void adamw(const AdamW& step, float* weights, const float* gradients, float* first_moment, float* second_moment,
           std::int64_t n) {
  const Vector beta1 = set(static_cast<float>(step.beta1));
  const Vector beta2 = set(static_cast<float>(step.beta2));
  const Vector rest1 = set(static_cast<float>(1.0 - step.beta1));
  const Vector rest2 = set(static_cast<float>(1.0 - step.beta2));
  const Vector keep = set(static_cast<float>(1.0 - step.learning_rate * step.weight_decay));
  const Vector rate = set(static_cast<float>(step.learning_rate / step.bias_correction1));
  const Vector inverse2 = set(static_cast<float>(1.0 / step.bias_correction2));
  const Vector epsilon = set(static_cast<float>(step.epsilon));
  const Vector scale_by = set(static_cast<float>(step.gradient_scale));
  for_vectors(n, [&](std::size_t i, auto access) TRIREME_SIMD {
    const Vector g = hn::Mul(access.load(gradients + i), scale_by);
    const Vector m = hn::MulAdd(beta1, access.load(first_moment + i), hn::Mul(rest1, g));
    const Vector v = hn::MulAdd(beta2, access.load(second_moment + i), hn::Mul(rest2, hn::Mul(g, g)));
    access.store(m, first_moment + i);
    access.store(v, second_moment + i);
    const Vector root = hn::Add(hn::Sqrt(hn::Mul(v, inverse2)), epsilon);
    const Vector kept = hn::Mul(access.load(weights + i), keep);
    access.store(hn::Sub(kept, hn::Div(hn::Mul(m, rate), root)), weights + i);
  });
}

// Eight chains in double, element e to chain e % 8, whatever the vectors' width: lanes of as many vectors as make
// eight.
double square_block(const float* x, std::int64_t n) {
  double chains[8] = {};
  const std::size_t size = static_cast<std::size_t>(n);
  const hn::CappedTag<double, 8> d;
  const hn::Rebind<float, decltype(d)> f;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (std::size_t part = 0; part < 8; part += lanes) {
    auto sum = hn::Zero(d);
    for (i = 0; i + 8 <= size; i += 8) {
      const auto wide = hn::PromoteTo(d, hn::LoadU(f, x + i + part));
      sum = hn::Add(sum, hn::Mul(wide, wide));
    }
    hn::StoreU(sum, d, chains + part);
  }
  for (i = size / 8 * 8; i < size; ++i) {
    const double wide = static_cast<double>(x[i]);
    chains[i % 8] += wide * wide;
  }
  return ((chains[0] + chains[1]) + (chains[2] + chains[3])) + ((chains[4] + chains[5]) + (chains[6] + chains[7]));
}

}  // namespace
}  // namespace trireme::kernels::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trireme::kernels::simd {

HWY_EXPORT(adamw);
HWY_EXPORT(square_block);

void adamw(const AdamW& step, float* weights, const float* gradients, float* first_moment, float* second_moment,
           std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(adamw)(step, weights, gradients, first_moment, second_moment, n);
}
double square_block(const float* x, std::int64_t n) { return HWY_DYNAMIC_DISPATCH(square_block)(x, n); }

}  // namespace trireme::kernels::simd
#endif
