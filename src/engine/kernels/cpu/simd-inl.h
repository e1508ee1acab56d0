// Included once for each instruction set by the simd_*.cc files, between HWY_BEFORE_NAMESPACE and HWY_AFTER_NAMESPACE
// of its own; never alone.
//
// A loop over n elements takes whole vectors and then one padded copy of what is left, through the same operations: so
// an element's bits do not depend on where in the vector, or in the row, it stands.

#if defined(TRIREME_ENGINE_KERNELS_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRIREME_ENGINE_KERNELS_CPU_SIMD_INL_H_
#undef TRIREME_ENGINE_KERNELS_CPU_SIMD_INL_H_
#else
#define TRIREME_ENGINE_KERNELS_CPU_SIMD_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include "engine/kernels/cpu/pair_block.h"
#include "engine/kernels/cpu/simd.h"

// A lambda of the vector loops: for the instruction set being compiled, and always inlined.
#undef TRIREME_SIMD
#define TRIREME_SIMD HWY_ATTR __attribute__((always_inline))

HWY_BEFORE_NAMESPACE();
namespace trireme::kernels::simd::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Floats = hn::ScalableTag<float>;
using Vector = hn::Vec<Floats>;

HWY_INLINE Vector set(float value) { return hn::Set(Floats(), value); }
HWY_INLINE Vector zero() { return hn::Zero(Floats()); }

using Words = hn::ScalableTag<std::uint32_t>;
using Halves = hn::Rebind<std::uint16_t, Words>;

HWY_INLINE Vector widened(hn::Vec<Halves> x) {
  return hn::BitCast(Floats(), hn::ShiftLeft<16>(hn::PromoteTo(Words(), x)));
}
#if HWY_TARGET == HWY_AVX3
inline const bool kHasPairInstruction = has_pair_instruction();
#endif

// Adds just below half of what is cut off, or half where the kept part is odd. NaN stays NaN.
HWY_INLINE hn::Vec<Halves> rounded(Vector x) {
#if HWY_TARGET == HWY_AVX3
  // The same by an instruction that takes subnormal numbers for zeros. It is not of this set, but comes with that of
  // pairs (pair_block.h).
  constexpr int kSubnormal = 0x20;
  if (kHasPairInstruction && HWY_LIKELY(_mm512_fpclass_ps_mask(x.raw, kSubnormal) == 0)) {
    __m256i halves;
    asm("vcvtneps2bf16 %1, %0" : "=v"(halves) : "v"(x.raw));
    return hn::Vec<Halves>{halves};
  }
#endif
  const Words d;
  const auto bits = hn::BitCast(d, x);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1u));
  const auto up = hn::Add(bits, hn::Add(odd, hn::Set(d, 0x7fffu)));
  const auto nan = hn::Or(bits, hn::Set(d, 0x400000u));
  const auto kept = hn::IfThenElse(hn::RebindMask(d, hn::IsNaN(x)), nan, up);
  return hn::TruncateTo(Halves(), hn::ShiftRight<16>(kept));
}

// Whole vectors.
struct Whole {
  HWY_INLINE Vector load(const float* from) const { return hn::LoadU(Floats(), from); }
  HWY_INLINE Vector load(const BFloat* from) const {
    return widened(hn::LoadU(Halves(), reinterpret_cast<const std::uint16_t*>(from)));
  }
  HWY_INLINE Vector load_or(const float* from, float) const { return load(from); }
  HWY_INLINE void store(Vector value, float* to) const { hn::StoreU(value, Floats(), to); }
  HWY_INLINE void store(Vector value, BFloat* to) const {
    hn::StoreU(rounded(value), Halves(), reinterpret_cast<std::uint16_t*>(to));
  }
};

// The first `count` lanes, fewer than a vector has; memory behind them is not touched.
struct Part {
  std::size_t count;
  HWY_INLINE Vector load(const float* from) const { return load_or(from, 0.0f); }
  // The other lanes hold `padding`.
  HWY_INLINE Vector load_or(const float* from, float padding) const {
    HWY_ALIGN float lanes[hn::MaxLanes(Floats())];
    hn::Store(set(padding), Floats(), lanes);
    std::memcpy(lanes, from, count * sizeof(float));
    return hn::Load(Floats(), lanes);
  }
  HWY_INLINE Vector load(const BFloat* from) const {
    HWY_ALIGN std::uint16_t lanes[hn::MaxLanes(Floats())] = {};
    std::memcpy(lanes, from, count * sizeof(*from));
    return widened(hn::Load(Halves(), lanes));
  }
  HWY_INLINE void store(Vector value, float* to) const {
    HWY_ALIGN float lanes[hn::MaxLanes(Floats())];
    hn::Store(value, Floats(), lanes);
    std::memcpy(to, lanes, count * sizeof(float));
  }
  HWY_INLINE void store(Vector value, BFloat* to) const {
    HWY_ALIGN std::uint16_t lanes[hn::MaxLanes(Floats())];
    hn::Store(rounded(value), Halves(), lanes);
    std::memcpy(to, lanes, count * sizeof(*to));
  }
};

// step(i, access) for the vectors that begin at elements i of [0, n).
template <class Step>
HWY_INLINE void for_vectors(std::int64_t n, Step step) {
  const std::size_t size = static_cast<std::size_t>(n);
  const std::size_t lanes = hn::Lanes(Floats());
  std::size_t i = 0;
  for (; i + lanes <= size; i += lanes) step(i, Whole{});
  if (i < size) step(i, Part{size - i});
}

// Four interleaved chains of sum = step(i, access, sum) from `start`, joined as join(join(0, 1), join(2, 3)). The order
// depends on n alone.
template <class Sum, class Step, class Join>
HWY_INLINE Sum reduce_vectors(std::int64_t n, Sum start, Step step, Join join) {
  const std::size_t size = static_cast<std::size_t>(n);
  const std::size_t lanes = hn::Lanes(Floats());
  Sum sum0 = start;
  Sum sum1 = start;
  Sum sum2 = start;
  Sum sum3 = start;
  std::size_t i = 0;
  for (; i + 4 * lanes <= size; i += 4 * lanes) {
    sum0 = step(i, Whole{}, sum0);
    sum1 = step(i + lanes, Whole{}, sum1);
    sum2 = step(i + 2 * lanes, Whole{}, sum2);
    sum3 = step(i + 3 * lanes, Whole{}, sum3);
  }
  for (; i + lanes <= size; i += lanes) sum0 = step(i, Whole{}, sum0);
  if (i < size) sum0 = step(i, Part{size - i}, sum0);
  return join(join(sum0, sum1), join(sum2, sum3));
}

// The sum over all lanes of the vectors that term(i, access) gives.
template <class Term>
HWY_INLINE float sum_vectors(std::int64_t n, Term term) {
  const Vector sum = reduce_vectors(
      n, zero(), [&](std::size_t i, auto access, Vector s) TRIREME_SIMD { return hn::Add(s, term(i, access)); },
      [](Vector a, Vector b) TRIREME_SIMD { return hn::Add(a, b); });
  return hn::GetLane(hn::SumOfLanes(Floats(), sum));
}

// Where a thread reads a part of each row, which the processor does not follow by itself.
template <class Number>
HWY_INLINE void read_ahead(const Number* number, std::int64_t stride) {
  constexpr std::int64_t kAheadRows = 16;
  __builtin_prefetch(number + kAheadRows * stride);
}

// total += the sums over rows of term(row, column, access), n columns: chains of kChainRows, added in ascending order.
template <class Term>
HWY_INLINE void sum_of_rows(float* total, std::int64_t rows, std::int64_t n, Term term) {
  HWY_ALIGN float chain[kMaxStripColumns];
  for (std::int64_t begin = 0; begin < rows; begin += kChainRows) {
    const std::int64_t end = begin + kChainRows < rows ? begin + kChainRows : rows;
    std::memset(chain, 0, static_cast<std::size_t>(n) * sizeof(float));
    for (std::int64_t row = begin; row < end; ++row) {
      for_vectors(n, [&](std::size_t i, auto access) TRIREME_SIMD {
        access.store(hn::Add(access.load(chain + i), term(row, i, access)), chain + i);
      });
    }
    for_vectors(n, [&](std::size_t i, auto access) TRIREME_SIMD {
      access.store(hn::Add(access.load(total + i), access.load(chain + i)), total + i);
    });
  }
}

// The one exponential of these kernels. Highway's knows neither NaN nor arguments beyond its range: NaN stays NaN, and
// beyond 104 it is infinity.
HWY_INLINE Vector exponential(Vector x) {
  const Vector result = hn::Exp(Floats(), hn::Min(x, set(104.0f)));
  return hn::IfThenElse(hn::Eq(x, x), result, x);
}

}  // namespace trireme::kernels::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
