#include "base/dtype.h"
#include "engine/kernels/cpu/pair_block.h"
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

using HalfFloats = hn::Rebind<hwy::float16_t, Floats>;

struct Half {
  HWY_INLINE static Vector widen(hn::Vec<Halves> x) { return hn::PromoteTo(Floats(), hn::BitCast(HalfFloats(), x)); }
  HWY_INLINE static hn::Vec<Halves> narrow(Vector x) { return hn::BitCast(Halves(), hn::DemoteTo(HalfFloats(), x)); }
};

// The instruction sets below have no conversion of halves that rounds as said.
constexpr bool kHasHalf = HWY_TARGET <= HWY_AVX2 || HWY_ARCH_ARM_A64;

HWY_INLINE void widen_halves(const std::uint16_t* from, float* to, std::size_t n) {
  const std::size_t lanes = hn::Lanes(Floats());
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(Half::widen(hn::LoadU(Halves(), from + i)), Floats(), to + i);
  if (i == n) return;
  HWY_ALIGN std::uint16_t part[hn::MaxLanes(Floats())] = {};
  std::memcpy(part, from + i, (n - i) * sizeof(std::uint16_t));
  Part{n - i}.store(Half::widen(hn::Load(Halves(), part)), to + i);
}

HWY_INLINE void narrow_to_halves(const float* from, std::uint16_t* to, std::size_t n) {
  const std::size_t lanes = hn::Lanes(Floats());
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(Half::narrow(hn::LoadU(Floats(), from + i)), Halves(), to + i);
  if (i == n) return;
  HWY_ALIGN std::uint16_t part[hn::MaxLanes(Floats())];
  hn::Store(Half::narrow(Part{n - i}.load(from + i)), Halves(), part);
  std::memcpy(to + i, part, (n - i) * sizeof(std::uint16_t));
}

template <class From, class To>
HWY_INLINE void copy_all(const From* from, To* to, std::int64_t n) {
  for_vectors(n, [&](std::size_t i, auto access) TRIREME_SIMD { access.store(access.load(from + i), to + i); });
}

void widen(DType dtype, const std::uint16_t* from, float* to, std::int64_t n) {
  if (dtype == DType::kBF16) return copy_all(reinterpret_cast<const BFloat*>(from), to, n);
  const auto size = static_cast<std::size_t>(n);
  if constexpr (kHasHalf) return widen_halves(from, to, size);
  convert_to_f32(dtype, std::as_bytes(std::span(from, size)), std::span(to, size));
}

void narrow(DType dtype, const float* from, std::uint16_t* to, std::int64_t n) {
  if (dtype == DType::kBF16) return copy_all(from, reinterpret_cast<BFloat*>(to), n);
  const auto size = static_cast<std::size_t>(n);
  if constexpr (kHasHalf) return narrow_to_halves(from, to, size);
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
  if (dtype == DType::kBF16 && has_pair_instruction()) return narrow_by_instruction(from, to, n);
  HWY_DYNAMIC_DISPATCH(narrow)(dtype, from, to, n);
}

}  // namespace trireme::kernels::simd
#endif
