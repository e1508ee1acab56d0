#include "engine/kernels/cpu/pair_block.h"
#include "engine/kernels/cpu/simd.h"
#include "engine/kernels/cpu/simd_targets.h"
#include "engine/kernels/flushed.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/cpu/simd_pairs.cc"
#include <algorithm>
#include <bit>

#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/kernels/cpu/simd-inl.h"

#if HWY_ARCH_X86
#include <immintrin.h>
#endif

HWY_BEFORE_NAMESPACE();
namespace trireme::kernels::simd::HWY_NAMESPACE {
namespace {

// Vectors whose multiply-add is fused and can be told to flush.
constexpr bool kFlushes = HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2;

// Subnormal numbers are zeros while it lives.
class Flushing {
 public:
#if HWY_ARCH_X86
  Flushing() : before_(_mm_getcsr()) { _mm_setcsr(before_ | kFlushToZero | kSubnormalsAreZeros); }
  ~Flushing() { _mm_setcsr(before_); }
#else
  Flushing() = default;
#endif
  Flushing(const Flushing&) = delete;
  Flushing& operator=(const Flushing&) = delete;

 private:
#if HWY_ARCH_X86
  static constexpr unsigned kFlushToZero = 0x8000, kSubnormalsAreZeros = 0x0040;
  unsigned before_;
#endif
};

HWY_INLINE float upper(std::uint32_t word) { return std::bit_cast<float>(word & 0xffff0000U); }
HWY_INLINE float lower(std::uint32_t word) { return std::bit_cast<float>(word << 16U); }
HWY_INLINE std::uint32_t word_at(const std::uint16_t* from) {
  std::uint32_t word;
  std::memcpy(&word, from, sizeof(word));
  return word;
}

// kRows rows, from `row` on, of two vectors of columns, to dense `sums` of kPairColumns.
template <int kRows>
HWY_NOINLINE void chains(const PairBlock& work, std::int64_t row, std::size_t column, float* sums) {
  const Floats d;
  const Words w;
  const std::size_t lanes = hn::Lanes(d);
  Vector sum[kRows][2];
  for (int i = 0; i < kRows; ++i) sum[i][0] = sum[i][1] = zero();
  for (std::int64_t p = 0; p < work.pairs; ++p) {
    const auto b0 = hn::LoadU(w, work.b + p * kPairColumns + column);
    const auto b1 = hn::LoadU(w, work.b + p * kPairColumns + column + lanes);
    const auto top = hn::Set(w, 0xffff0000U);
    const Vector upper0 = hn::BitCast(d, hn::And(b0, top)), lower0 = hn::BitCast(d, hn::ShiftLeft<16>(b0));
    const Vector upper1 = hn::BitCast(d, hn::And(b1, top)), lower1 = hn::BitCast(d, hn::ShiftLeft<16>(b1));
    for (int i = 0; i < kRows; ++i) {
      const std::uint32_t word = word_at(work.a + (row + i) * work.a_row + p * work.a_pair);
      const Vector a_upper = set(upper(word)), a_lower = set(lower(word));
      sum[i][0] = hn::MulAdd(a_lower, lower0, hn::MulAdd(a_upper, upper0, sum[i][0]));
      sum[i][1] = hn::MulAdd(a_lower, lower1, hn::MulAdd(a_upper, upper1, sum[i][1]));
    }
  }
  for (int i = 0; i < kRows; ++i) {
    hn::StoreU(sum[i][0], d, sums + (row + i) * kPairColumns + column);
    hn::StoreU(sum[i][1], d, sums + (row + i) * kPairColumns + column + lanes);
  }
}

void all_chains(const PairBlock& work, float* sums) {
  const Flushing flushing;
  constexpr int kRows = 4;
  const std::size_t step = 2 * hn::Lanes(Floats());
  for (std::size_t column = 0; column < static_cast<std::size_t>(work.columns); column += step) {
    std::int64_t row = 0;
    for (; row + kRows <= work.rows; row += kRows) chains<kRows>(work, row, column, sums);
    for (; row < work.rows; ++row) chains<1>(work, row, column, sums);
  }
}

void all_chains_one_by_one(const PairBlock& work, float* sums) {
  for (std::int64_t i = 0; i < work.rows; ++i) {
    for (std::int64_t j = 0; j < work.columns; ++j) {
      float sum = 0;
      for (std::int64_t p = 0; p < work.pairs; ++p) {
        const std::uint32_t a = word_at(work.a + i * work.a_row + p * work.a_pair), b = work.b[p * kPairColumns + j];
        sum = flushed_multiply_add(lower(a), lower(b), flushed_multiply_add(upper(a), upper(b), sum));
      }
      sums[i * kPairColumns + j] = sum;
    }
  }
}

void pair_block_by_multiply_add(const PairBlock& work) {
  static_assert(kPairColumns % (2 * hn::MaxLanes(Floats())) == 0);
  HWY_ALIGN float sums[kPairRows * kPairColumns];
  if constexpr (kFlushes) {
    all_chains(work, sums);
  } else {
    all_chains_one_by_one(work, sums);
  }
  for (std::int64_t i = 0; i < work.rows; ++i) {
    float* c = work.c + i * work.c_stride;
    if (work.old != nullptr) simd::widen(DType::kBF16, work.old + i * work.rounded_stride, c, work.columns);
    if (work.add || work.old != nullptr) {
      const float* from = sums + i * kPairColumns;
      for_vectors(work.columns, [&](std::size_t j, auto access) TRIREME_SIMD {
        access.store(hn::Add(access.load(c + j), access.load(from + j)), c + j);
      });
    } else {
      std::memcpy(c, sums + i * kPairColumns, static_cast<std::size_t>(work.columns) * sizeof(float));
    }
    if (work.rounded == nullptr) continue;
    simd::narrow(DType::kBF16, c, work.rounded + i * work.rounded_stride, work.columns);
  }
}

// `count` words, and zeros up to `room`.
HWY_INLINE void interleave_panel(const std::uint16_t* first, const std::uint16_t* second, std::int64_t count,
                                 std::uint32_t* to, std::int64_t room) {
  const Words w;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(w));
  std::int64_t i = 0;
  if (second != nullptr) {
    for (; i + lanes <= count; i += lanes) {
      const auto low = hn::PromoteTo(w, hn::LoadU(Halves(), first + i));
      const auto high = hn::PromoteTo(w, hn::LoadU(Halves(), second + i));
      hn::StoreU(hn::Or(low, hn::ShiftLeft<16>(high)), w, to + i);
    }
  }
  for (; i < count; ++i) to[i] = first[i] | static_cast<std::uint32_t>(second == nullptr ? 0 : second[i]) << 16U;
  for (; i < room; ++i) to[i] = 0;
}

void interleave(const std::uint16_t* first, const std::uint16_t* second, const PanelShape& shape, std::uint32_t* to) {
  for (std::int64_t column = 0; column < shape.columns; column += shape.width, to += shape.panel_stride) {
    interleave_panel(first + column, second == nullptr ? nullptr : second + column,
                     std::min(shape.room, shape.columns - column), to, shape.room);
  }
}

}  // namespace
}  // namespace trireme::kernels::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trireme::kernels::simd {

HWY_EXPORT(pair_block_by_multiply_add);
HWY_EXPORT(interleave);

void pair_block_by_multiply_add(const PairBlock& block) { HWY_DYNAMIC_DISPATCH(pair_block_by_multiply_add)(block); }
void pair_block(const PairBlock& block) {
  (has_pair_instruction() ? pair_block_by_instruction : pair_block_by_multiply_add)(block);
}
void transpose_pairs(const std::uint16_t* from, std::int64_t stride, std::int64_t rows, std::int64_t numbers,
                     std::uint32_t* to) {
  (has_pair_instruction() ? transpose_pairs_by_instruction : transpose_pairs_by_words)(from, stride, rows, numbers, to);
}
void transpose_pairs_by_words(const std::uint16_t* from, std::int64_t stride, std::int64_t rows, std::int64_t numbers,
                              std::uint32_t* to) {
  std::fill_n(to, (numbers + 1) / 2 * kPairColumns, 0U);
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t k = 0; k < numbers; ++k) {
      to[k / 2 * kPairColumns + i] |= static_cast<std::uint32_t>(from[i * stride + k]) << (k % 2 * 16);
    }
  }
}
void interleave(const std::uint16_t* first, const std::uint16_t* second, const PanelShape& shape, std::uint32_t* to) {
  HWY_DYNAMIC_DISPATCH(interleave)(first, second, shape, to);
}

}  // namespace trireme::kernels::simd
#endif
