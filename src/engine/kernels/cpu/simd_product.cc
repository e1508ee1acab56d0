#include <algorithm>
#include <cmath>

#include "engine/kernels/cpu/simd.h"
#include "engine/kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/cpu/simd_product.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace trireme::kernels::simd::HWY_NAMESPACE {
namespace {

// Highway's MulAdd is two roundings where the instruction set has no fused one.
constexpr bool kFused = HWY_TARGET <= HWY_AVX2 || HWY_ARCH_ARM_A64;

HWY_INLINE Vector multiply_add(Vector a, Vector b, Vector sum) {
  if constexpr (kFused) return hn::MulAdd(a, b, sum);
  const Floats d;
  HWY_ALIGN float lanes[3][hn::MaxLanes(Floats())];
  hn::Store(a, d, lanes[0]);
  hn::Store(b, d, lanes[1]);
  hn::Store(sum, d, lanes[2]);
  for (std::size_t i = 0; i < hn::Lanes(d); ++i) lanes[2][i] = std::fma(lanes[0][i], lanes[1][i], lanes[2][i]);
  return hn::Load(d, lanes[2]);
}

// Rows [row, row + kRows) and two vectors of columns, from `column` on.
template <int kRows>
HWY_INLINE void tile(const PanelProduct& work, std::int64_t row, std::size_t column) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d);
  const float* a = work.a + row * work.a_row;
  const float* b = work.b + column;
  Vector sum[kRows][2];
  for (int r = 0; r < kRows; ++r) sum[r][0] = sum[r][1] = zero();
  for (std::int64_t k = 0; k < work.inner; ++k, a += work.a_column, b += work.b_row) {
    const Vector b0 = hn::LoadU(d, b);
    const Vector b1 = hn::LoadU(d, b + lanes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Vector factor = set(a[r * work.a_row]);
      sum[r][0] = multiply_add(factor, b0, sum[r][0]);
      sum[r][1] = multiply_add(factor, b1, sum[r][1]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    float* c = work.c + (row + r) * work.c_stride + column;
    hn::StoreU(work.add ? hn::Add(hn::LoadU(d, c), sum[r][0]) : sum[r][0], d, c);
    hn::StoreU(work.add ? hn::Add(hn::LoadU(d, c + lanes), sum[r][1]) : sum[r][1], d, c + lanes);
  }
}

template <int kRows>
void row_of_tiles(const PanelProduct& work, std::int64_t row) {
  const std::size_t step = 2 * hn::Lanes(Floats());
  for (std::size_t column = 0; column < kPanelColumns; column += step) tile<kRows>(work, row, column);
}

void panel_product(const PanelProduct& work) {
  static_assert(kPanelColumns % (2 * hn::MaxLanes(Floats())) == 0);
  constexpr int kRows = HWY_TARGET <= HWY_AVX3 ? 8 : 6;  // with 32 vector registers, or 16
  std::int64_t row = 0;
  for (; row + kRows <= work.rows; row += kRows) row_of_tiles<kRows>(work, row);
  for (; row + 2 <= work.rows; row += 2) row_of_tiles<2>(work, row);
  if (row < work.rows) row_of_tiles<1>(work, row);
}

void block_product(const BlockProduct& work) {
  HWY_ALIGN float panel[kGemmKBlock * kPanelColumns];
  for (std::int64_t k = 0; k < work.inner; ++k) {
    for (std::int64_t j = 0; j < kPanelColumns; ++j) {
      panel[k * kPanelColumns + j] = j < work.columns ? work.b[k * work.b_row + j * work.b_column] : 0.0f;
    }
  }
  PanelProduct all{.a = work.a,
                   .a_row = work.a_row,
                   .a_column = work.a_column,
                   .b = panel,
                   .b_row = kPanelColumns,
                   .c = work.c,
                   .c_stride = work.c_stride,
                   .rows = work.rows,
                   .inner = work.inner,
                   .add = work.add};
  if (work.columns == kPanelColumns) return HWY_NAMESPACE::panel_product(all);
  // Fewer columns than a panel has, some rows at a time by way of a whole one.
  constexpr std::int64_t kRows = 24;
  HWY_ALIGN float part[kRows * kPanelColumns];
  const auto bytes = static_cast<std::size_t>(work.columns) * sizeof(float);
  for (std::int64_t row = 0; row < work.rows; row += kRows) {
    PanelProduct some = all;
    some.a = work.a + row * work.a_row;
    some.rows = std::min(kRows, work.rows - row);
    some.c = part;
    some.c_stride = kPanelColumns;
    for (std::int64_t i = 0; work.add && i < some.rows; ++i) {
      std::memset(part + i * kPanelColumns, 0, kPanelColumns * sizeof(float));
      std::memcpy(part + i * kPanelColumns, work.c + (row + i) * work.c_stride, bytes);
    }
    HWY_NAMESPACE::panel_product(some);
    for (std::int64_t i = 0; i < some.rows; ++i) {
      std::memcpy(work.c + (row + i) * work.c_stride, part + i * kPanelColumns, bytes);
    }
  }
}

}  // namespace
}  // namespace trireme::kernels::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trireme::kernels::simd {

HWY_EXPORT(panel_product);
HWY_EXPORT(block_product);

void panel_product(const PanelProduct& work) { HWY_DYNAMIC_DISPATCH(panel_product)(work); }
void block_product(const BlockProduct& work) { HWY_DYNAMIC_DISPATCH(block_product)(work); }

}  // namespace trireme::kernels::simd
#endif
