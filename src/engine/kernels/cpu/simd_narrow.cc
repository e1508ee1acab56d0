#include "base/dtype.h"
#include "engine/kernels/cpu/simd.h"
#include "engine/kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/cpu/simd_narrow.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace trireme::kernels::simd::HWY_NAMESPACE {
namespace {

using Words = hn::ScalableTag<std::uint32_t>;
using Halves = hn::Rebind<std::uint16_t, Words>;
using HalfFloats = hn::Rebind<hwy::float16_t, Floats>;

struct BFloat {
  HWY_INLINE static Vector widen(hn::Vec<Halves> x) {
    return hn::BitCast(Floats(), hn::ShiftLeft<16>(hn::PromoteTo(Words(), x)));
  }
  // Adds just below half of what is cut off, or half where the kept part is odd. NaN stays NaN.
  HWY_INLINE static hn::Vec<Halves> narrow(Vector x) {
    const Words d;
    const auto bits = hn::BitCast(d, x);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1u));
    const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(d, 0x7fffu)));
    const auto nan = hn::Or(bits, hn::Set(d, 0x400000u));
    const auto kept = hn::IfThenElse(hn::RebindMask(d, hn::IsNaN(x)), nan, rounded);
    return hn::TruncateTo(Halves(), hn::ShiftRight<16>(kept));
  }
};

struct Half {
  HWY_INLINE static Vector widen(hn::Vec<Halves> x) { return hn::PromoteTo(Floats(), hn::BitCast(HalfFloats(), x)); }
  HWY_INLINE static hn::Vec<Halves> narrow(Vector x) { return hn::BitCast(Halves(), hn::DemoteTo(HalfFloats(), x)); }
};

// The instruction sets below have no conversion of halves that rounds as said.
constexpr bool kHasHalf = HWY_TARGET <= HWY_AVX2 || HWY_ARCH_ARM_A64;

template <class Type>
void widen_all(const std::uint16_t* from, float* to, std::size_t n) {
  const std::size_t lanes = hn::Lanes(Floats());
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(Type::widen(hn::LoadU(Halves(), from + i)), Floats(), to + i);
  if (i == n) return;
  HWY_ALIGN std::uint16_t part[hn::MaxLanes(Floats())] = {};
  std::memcpy(part, from + i, (n - i) * sizeof(std::uint16_t));
  Part{n - i}.store(Type::widen(hn::Load(Halves(), part)), to + i);
}

template <class Type>
void narrow_all(const float* from, std::uint16_t* to, std::size_t n) {
  const std::size_t lanes = hn::Lanes(Floats());
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(Type::narrow(hn::LoadU(Floats(), from + i)), Halves(), to + i);
  if (i == n) return;
  HWY_ALIGN std::uint16_t part[hn::MaxLanes(Floats())];
  hn::Store(Type::narrow(Part{n - i}.load(from + i)), Halves(), part);
  std::memcpy(to + i, part, (n - i) * sizeof(std::uint16_t));
}

void widen(DType dtype, const std::uint16_t* from, float* to, std::int64_t n) {
  const auto size = static_cast<std::size_t>(n);
  if (dtype == DType::kBF16) return widen_all<BFloat>(from, to, size);
  if constexpr (kHasHalf) return widen_all<Half>(from, to, size);
  convert_to_f32(dtype, std::as_bytes(std::span(from, size)), std::span(to, size));
}

void narrow(DType dtype, const float* from, std::uint16_t* to, std::int64_t n) {
  const auto size = static_cast<std::size_t>(n);
  if (dtype == DType::kBF16) return narrow_all<BFloat>(from, to, size);
  if constexpr (kHasHalf) return narrow_all<Half>(from, to, size);
  convert_from_f32(dtype, std::span(from, size), std::as_writable_bytes(std::span(to, size)));
}

}  // namespace
}  // namespace trireme::kernels::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trireme::kernels::simd {

HWY_EXPORT(widen);
HWY_EXPORT(narrow);

void widen(DType dtype, const std::uint16_t* from, float* to, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(widen)(dtype, from, to, n);
}
void narrow(DType dtype, const float* from, std::uint16_t* to, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(narrow)(dtype, from, to, n);
}

}  // namespace trireme::kernels::simd
#endif
