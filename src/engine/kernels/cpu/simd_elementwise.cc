#include "engine/kernels/cpu/simd.h"
#include "engine/kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/cpu/simd_elementwise.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace trireme::kernels::simd::HWY_NAMESPACE {
namespace {

const char* instruction_set() { return hwy::TargetName(HWY_TARGET); }

template <class Number>
HWY_INLINE void add_to(Number* y, const float* x, std::int64_t n) {
  for_vectors(n, [&](std::size_t i, auto access)
                     TRIREME_SIMD { access.store(hn::Add(access.load(y + i), access.load(x + i)), y + i); });
}
void add_f32(float* y, const float* x, std::int64_t n) { add_to(y, x, n); }
void add_bf16(BFloat* y, const float* x, std::int64_t n) { add_to(y, x, n); }

void scale(float* x, float factor, std::int64_t n) {
  for_vectors(n, [&](std::size_t i, auto access)
                     TRIREME_SIMD { access.store(hn::Mul(access.load(x + i), set(factor)), x + i); });
}

HWY_INLINE Vector times_factor(Vector x, Vector factor) {
  return hn::IfThenZeroElse(hn::Eq(factor, zero()), hn::Mul(x, factor));
}

void residual_add(float* out, const float* residual, const float* x, const float* bias, const float* factors,
                  std::int64_t n) {
  for_vectors(n, [&](std::size_t i, auto access) TRIREME_SIMD {
    Vector branch = access.load(x + i);
    if (bias != nullptr) branch = hn::Add(branch, access.load(bias + i));
    if (factors != nullptr) branch = times_factor(branch, access.load(factors + i));
    access.store(hn::Add(access.load(residual + i), branch), out + i);
  });
}

void apply_factors(float* out, const float* x, const float* factors, std::int64_t n) {
  for_vectors(n, [&](std::size_t i, auto access) TRIREME_SIMD {
    access.store(times_factor(access.load(x + i), access.load(factors + i)), out + i);
  });
}

void rotate(float* first, float* second, const float* cosines, const float* sines, bool inverse, std::int64_t n) {
  for_vectors(n, [&](std::size_t i, auto access) TRIREME_SIMD {
    const Vector a = access.load(first + i);
    const Vector b = access.load(second + i);
    const Vector c = access.load(cosines + i);
    const Vector s = inverse ? hn::Neg(access.load(sines + i)) : access.load(sines + i);
    access.store(hn::Sub(hn::Mul(a, c), hn::Mul(b, s)), first + i);
    access.store(hn::Add(hn::Mul(b, c), hn::Mul(a, s)), second + i);
  });
}

template <class Number>
HWY_INLINE void strip_sum_of(float* total, const Number* x, std::int64_t stride, std::int64_t rows, std::int64_t n) {
  sum_of_rows(total, rows, n, [&](std::int64_t row, std::size_t i, auto access) TRIREME_SIMD {
    const Number* number = x + row * stride + static_cast<std::int64_t>(i);
    read_ahead(number, stride);
    return access.load(number);
  });
}
void strip_sum_f32(float* total, const float* x, std::int64_t stride, std::int64_t rows, std::int64_t n) {
  strip_sum_of(total, x, stride, rows, n);
}
void strip_sum_bf16(float* total, const BFloat* x, std::int64_t stride, std::int64_t rows, std::int64_t n) {
  strip_sum_of(total, x, stride, rows, n);
}

}  // namespace
}  // namespace trireme::kernels::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trireme::kernels::simd {

HWY_EXPORT(instruction_set);
HWY_EXPORT(add_f32);
HWY_EXPORT(add_bf16);
HWY_EXPORT(scale);
HWY_EXPORT(residual_add);
HWY_EXPORT(apply_factors);
HWY_EXPORT(rotate);
HWY_EXPORT(strip_sum_f32);
HWY_EXPORT(strip_sum_bf16);

const char* instruction_set() { return HWY_DYNAMIC_DISPATCH(instruction_set)(); }
void add(float* y, const float* x, std::int64_t n) { HWY_DYNAMIC_DISPATCH(add_f32)(y, x, n); }
void add(BFloat* y, const float* x, std::int64_t n) { HWY_DYNAMIC_DISPATCH(add_bf16)(y, x, n); }
void scale(float* x, float factor, std::int64_t n) { HWY_DYNAMIC_DISPATCH(scale)(x, factor, n); }
void residual_add(float* out, const float* residual, const float* x, const float* bias, const float* factors,
                  std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(residual_add)(out, residual, x, bias, factors, n);
}
void apply_factors(float* out, const float* x, const float* factors, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(apply_factors)(out, x, factors, n);
}
void rotate(float* first, float* second, const float* cosines, const float* sines, bool inverse, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(rotate)(first, second, cosines, sines, inverse, n);
}
void strip_sum(float* total, const float* x, std::int64_t stride, std::int64_t rows, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(strip_sum_f32)(total, x, stride, rows, n);
}
void strip_sum(float* total, const BFloat* x, std::int64_t stride, std::int64_t rows, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(strip_sum_bf16)(total, x, stride, rows, n);
}

}  // namespace trireme::kernels::simd
#endif
