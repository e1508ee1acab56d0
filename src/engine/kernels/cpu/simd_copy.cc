#include "engine/kernels/cpu/simd.h"
#include "engine/kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/cpu/simd_copy.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace trireme::kernels::simd::HWY_NAMESPACE {
namespace {

void copy_row(float* to, const float* from, std::int64_t n) {
  constexpr std::size_t kLine = 64;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(Floats()));
  std::int64_t i = 0;
  while (i < n && reinterpret_cast<std::uintptr_t>(to + i) % kLine != 0) {
    to[i] = from[i];
    ++i;
  }
  for (; i + lanes <= n; i += lanes) hn::Stream(hn::LoadU(Floats(), from + i), Floats(), to + i);
  for (; i < n; ++i) to[i] = from[i];
}

void copy_rows_past_cache(float* to, const float* from, std::int64_t row, std::int64_t rows, std::int64_t stride) {
  for (std::int64_t i = 0; i < rows; ++i) copy_row(to + i * row, from + i * stride, row);
  hwy::FlushStream();
}

}  // namespace
}  // namespace trireme::kernels::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trireme::kernels::simd {

HWY_EXPORT(copy_rows_past_cache);

void copy_rows_past_cache(float* to, const float* from, std::int64_t row, std::int64_t rows, std::int64_t stride) {
  HWY_DYNAMIC_DISPATCH(copy_rows_past_cache)(to, from, row, rows, stride);
}

}  // namespace trireme::kernels::simd
#endif
