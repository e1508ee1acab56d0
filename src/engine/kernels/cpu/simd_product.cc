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

// Rows [row, row + kRows) and two vectors of columns of a panel [inner, kPanelColumns], to dense `sums` of that width.
template <int kRows>
void tile(const BlockProduct& work, std::int64_t row, const float* panel, std::size_t column, float* sums) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d);
  const float* a = work.a + row * work.a_row;
  Vector sum[kRows][2];
  for (int r = 0; r < kRows; ++r) sum[r][0] = sum[r][1] = zero();
  for (std::int64_t k = 0; k < work.inner; ++k) {
    const Vector b0 = hn::LoadU(d, panel + k * kPanelColumns + column);
    const Vector b1 = hn::LoadU(d, panel + k * kPanelColumns + column + lanes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Vector factor = set(a[r * work.a_row + k * work.a_column]);
      sum[r][0] = multiply_add(factor, b0, sum[r][0]);
      sum[r][1] = multiply_add(factor, b1, sum[r][1]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    hn::StoreU(sum[r][0], d, sums + r * kPanelColumns + column);
    hn::StoreU(sum[r][1], d, sums + r * kPanelColumns + column + lanes);
  }
}

template <int kRows>
void row_of_tiles(const BlockProduct& work, std::int64_t row, const float* panel) {
  HWY_ALIGN float sums[kRows * kPanelColumns];
  const std::size_t step = 2 * hn::Lanes(Floats());
  for (std::size_t column = 0; column < static_cast<std::size_t>(work.columns); column += step) {
    tile<kRows>(work, row, panel, column, sums);
  }
  for (int r = 0; r < kRows; ++r) {
    float* c = work.c + (row + r) * work.c_stride;
    if (work.add) {
      const float* from = sums + r * kPanelColumns;
      for_vectors(work.columns, [&](std::size_t i, auto access) TRIREME_SIMD {
        access.store(hn::Add(access.load(c + i), access.load(from + i)), c + i);
      });
    } else {
      std::memcpy(c, sums + r * kPanelColumns, static_cast<std::size_t>(work.columns) * sizeof(float));
    }
  }
}

void block_product(const BlockProduct& work) {
  static_assert(kPanelColumns % (2 * hn::MaxLanes(Floats())) == 0);
  HWY_ALIGN float panel[kGemmKBlock * kPanelColumns];
  for (std::int64_t k = 0; k < work.inner; ++k) {
    for (std::int64_t j = 0; j < kPanelColumns; ++j) {
      panel[k * kPanelColumns + j] = j < work.columns ? work.b[k * work.b_row + j * work.b_column] : 0.0f;
    }
  }
  constexpr int kRows = 6;
  std::int64_t row = 0;
  for (; row + kRows <= work.rows; row += kRows) row_of_tiles<kRows>(work, row, panel);
  for (; row < work.rows; ++row) row_of_tiles<1>(work, row, panel);
}

}  // namespace
}  // namespace trireme::kernels::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trireme::kernels::simd {

HWY_EXPORT(block_product);

void block_product(const BlockProduct& work) { HWY_DYNAMIC_DISPATCH(block_product)(work); }

}  // namespace trireme::kernels::simd
#endif
