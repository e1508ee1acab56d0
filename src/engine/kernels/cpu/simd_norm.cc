#include "engine/kernels/cpu/simd.h"
#include "engine/kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/cpu/simd_norm.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace trireme::kernels::simd::HWY_NAMESPACE {
namespace {

float sum(const float* x, std::int64_t n) {
  return sum_vectors(n, [&](std::size_t i, auto access) TRIREME_SIMD { return access.load(x + i); });
}

float square_deviation(const float* x, float center, std::int64_t n) {
  return sum_vectors(n, [&](std::size_t i, auto access) TRIREME_SIMD {
    const Vector d = hn::Sub(access.load_or(x + i, center), set(center));
    return hn::Mul(d, d);
  });
}

float dot(const float* x, const float* y, std::int64_t n) {
  return sum_vectors(
      n, [&](std::size_t i, auto access) TRIREME_SIMD { return hn::Mul(access.load(x + i), access.load(y + i)); });
}

HWY_INLINE Vector normalised(Vector x, RowStats stats) {
  return hn::Mul(hn::Sub(x, set(stats.mean)), set(stats.inverse_deviation));
}

void norm_apply(const float* x, RowStats stats, const float* weight, const float* bias, float* y, std::int64_t n) {
  for_vectors(n, [&](std::size_t i, auto access) TRIREME_SIMD {
    Vector value = hn::Mul(normalised(access.load(x + i), stats), access.load(weight + i));
    if (bias != nullptr) value = hn::Add(value, access.load(bias + i));
    access.store(value, y + i);
  });
}

float norm_dot(const float* d_y, const float* x, RowStats stats, const float* weight, std::int64_t n) {
  return sum_vectors(n, [&](std::size_t i, auto access) TRIREME_SIMD {
    const Vector g = hn::Mul(access.load(d_y + i), access.load(weight + i));
    return hn::Mul(g, normalised(access.load(x + i), stats));
  });
}

void norm_backward_apply(const float* d_y, const float* x, RowStats stats, const float* weight, float mean_gradient,
                         float mean_product, const float* addend, float* d_x, std::int64_t n) {
  for_vectors(n, [&](std::size_t i, auto access) TRIREME_SIMD {
    const Vector g = hn::Mul(access.load(d_y + i), access.load(weight + i));
    const Vector z = normalised(access.load(x + i), stats);
    const Vector inner = hn::Sub(hn::Sub(g, set(mean_gradient)), hn::Mul(z, set(mean_product)));
    Vector value = hn::Mul(inner, set(stats.inverse_deviation));
    if (addend != nullptr) value = hn::Add(access.load(addend + i), value);
    access.store(value, d_x + i);
  });
}

template <class Number>
HWY_INLINE void strip_sum_of(float* total, const Number* d_y, std::int64_t d_y_stride, const Number* x,
                             std::int64_t x_stride, const float* stats, std::int64_t stats_stride, std::int64_t rows,
                             std::int64_t n) {
  sum_of_rows(total, rows, n, [&](std::int64_t row, std::size_t i, auto access) TRIREME_SIMD {
    const RowStats of_row{stats[row * stats_stride], stats[row * stats_stride + 1]};
    const Number* gradient = d_y + row * d_y_stride + static_cast<std::int64_t>(i);
    const Number* value = x + row * x_stride + static_cast<std::int64_t>(i);
    read_ahead(gradient, d_y_stride);
    read_ahead(value, x_stride);
    return hn::Mul(access.load(gradient), normalised(access.load(value), of_row));
  });
}
void strip_sum_normalised_f32(float* total, const float* d_y, std::int64_t d_y_stride, const float* x,
                              std::int64_t x_stride, const float* stats, std::int64_t stats_stride, std::int64_t rows,
                              std::int64_t n) {
  strip_sum_of(total, d_y, d_y_stride, x, x_stride, stats, stats_stride, rows, n);
}
void strip_sum_normalised_bf16(float* total, const BFloat* d_y, std::int64_t d_y_stride, const BFloat* x,
                               std::int64_t x_stride, const float* stats, std::int64_t stats_stride, std::int64_t rows,
                               std::int64_t n) {
  strip_sum_of(total, d_y, d_y_stride, x, x_stride, stats, stats_stride, rows, n);
}

}  // namespace
}  // namespace trireme::kernels::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trireme::kernels::simd {

HWY_EXPORT(sum);
HWY_EXPORT(square_deviation);
HWY_EXPORT(dot);
HWY_EXPORT(norm_apply);
HWY_EXPORT(norm_dot);
HWY_EXPORT(norm_backward_apply);
HWY_EXPORT(strip_sum_normalised_f32);
HWY_EXPORT(strip_sum_normalised_bf16);

float sum(const float* x, std::int64_t n) { return HWY_DYNAMIC_DISPATCH(sum)(x, n); }
float square_deviation(const float* x, float center, std::int64_t n) {
  return HWY_DYNAMIC_DISPATCH(square_deviation)(x, center, n);
}
float dot(const float* x, const float* y, std::int64_t n) { return HWY_DYNAMIC_DISPATCH(dot)(x, y, n); }
void norm_apply(const float* x, RowStats stats, const float* weight, const float* bias, float* y, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(norm_apply)(x, stats, weight, bias, y, n);
}
float norm_dot(const float* d_y, const float* x, RowStats stats, const float* weight, std::int64_t n) {
  return HWY_DYNAMIC_DISPATCH(norm_dot)(d_y, x, stats, weight, n);
}
void norm_backward_apply(const float* d_y, const float* x, RowStats stats, const float* weight, float mean_gradient,
                         float mean_product, const float* addend, float* d_x, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(norm_backward_apply)
  (d_y, x, stats, weight, mean_gradient, mean_product, addend, d_x, n);
}
void strip_sum_normalised(float* total, const float* d_y, std::int64_t d_y_stride, const float* x,
                          std::int64_t x_stride, const float* stats, std::int64_t stats_stride, std::int64_t rows,
                          std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(strip_sum_normalised_f32)
  (total, d_y, d_y_stride, x, x_stride, stats, stats_stride, rows, n);
}
void strip_sum_normalised(float* total, const BFloat* d_y, std::int64_t d_y_stride, const BFloat* x,
                          std::int64_t x_stride, const float* stats, std::int64_t stats_stride, std::int64_t rows,
                          std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(strip_sum_normalised_bf16)
  (total, d_y, d_y_stride, x, x_stride, stats, stats_stride, rows, n);
}

}  // namespace trireme::kernels::simd
#endif
