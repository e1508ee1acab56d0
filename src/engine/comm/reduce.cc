#include "engine/comm/reduce.h"

#include <algorithm>
#include <array>
#include <type_traits>

#include "base/check.h"

namespace trireme::comm {
namespace {

template <Reduction How, class T>
T combine(T a, T b) {
  if constexpr (How == Reduction::kMax) {
    return a < b ? b : a;
  } else if constexpr (std::is_integral_v<T>) {  // signed overflow is undefined, unsigned wraps
    using Unsigned = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
  } else {
    return a + b;
  }
}

// In blocks that stay in the first cache level; the order of an element's sum does not depend on them.
template <Reduction How, class T>
void reduce_blocks(std::span<const std::byte* const> sources, std::span<std::byte* const> destinations, Share share) {
  constexpr std::int64_t kBlock = 1024;
  std::array<T, kBlock> sum;
  for (std::int64_t begin = share.begin; begin < share.end; begin += kBlock) {
    const std::int64_t count = std::min(kBlock, share.end - begin);
    std::copy_n(reinterpret_cast<const T*>(sources.front()) + begin, count, sum.data());
    for (const std::byte* source : sources.subspan(1)) {
      const T* const addend = reinterpret_cast<const T*>(source) + begin;
      for (std::int64_t i = 0; i < count; ++i) {
        T& value = sum[static_cast<std::size_t>(i)];
        value = combine<How>(value, addend[i]);
      }
    }
    for (std::byte* destination : destinations) {
      std::copy_n(sum.data(), count, reinterpret_cast<T*>(destination) + begin);
    }
  }
}

// Sums in F32, rounded once.
void add_narrow(DType dtype, std::span<const std::byte* const> sources, std::span<std::byte* const> destinations,
                Share share) {
  constexpr std::int64_t kBlock = 1024;
  std::array<float, kBlock> sum, addend;
  const std::int64_t element = dtype_size(dtype);
  for (std::int64_t begin = share.begin; begin < share.end; begin += kBlock) {
    const auto count = static_cast<std::size_t>(std::min(kBlock, share.end - begin));
    const std::size_t bytes = count * static_cast<std::size_t>(element);
    convert_to_f32(dtype, {sources.front() + begin * element, bytes}, std::span(sum).first(count));
    for (const std::byte* source : sources.subspan(1)) {
      convert_to_f32(dtype, {source + begin * element, bytes}, std::span(addend).first(count));
      for (std::size_t i = 0; i < count; ++i) sum[i] += addend[i];
    }
    for (std::byte* destination : destinations) {
      convert_from_f32(dtype, std::span(sum).first(count), {destination + begin * element, bytes});
    }
  }
}

template <class T>
void reduce_typed(Reduction reduction, std::span<const std::byte* const> sources,
                  std::span<std::byte* const> destinations, Share share) {
  if (reduction == Reduction::kMax) return reduce_blocks<Reduction::kMax, T>(sources, destinations, share);
  reduce_blocks<Reduction::kSum, T>(sources, destinations, share);
}

}  // namespace

void check_reduction(DType dtype, Reduction reduction) {
  const bool floating = dtype == DType::kF32 || dtype == DType::kF64;
  const bool summed = dtype == DType::kI32 || dtype == DType::kI64 || is_narrow(dtype);
  TRIREME_CHECK(floating || (summed && reduction == Reduction::kSum), "no {} of {} over ranks",
                reduction == Reduction::kSum ? "sum" : "maximum", dtype_name(dtype));
}

void reduce_in_order(DType dtype, Reduction reduction, std::span<const std::byte* const> sources,
                     std::span<std::byte* const> destinations, Share share) {
  check_reduction(dtype, reduction);
  TRIREME_CHECK(!sources.empty());
  switch (dtype) {
    case DType::kF32:
      return reduce_typed<float>(reduction, sources, destinations, share);
    case DType::kF64:
      return reduce_typed<double>(reduction, sources, destinations, share);
    case DType::kBF16:
    case DType::kF16:
      return add_narrow(dtype, sources, destinations, share);
    case DType::kI32:
      return reduce_typed<std::int32_t>(reduction, sources, destinations, share);
    default:
      return reduce_typed<std::int64_t>(reduction, sources, destinations, share);
  }
}

void reduce_in_order(DType dtype, Reduction reduction, std::span<const std::byte* const> sources,
                     std::byte* destination, Share share) {
  reduce_in_order(dtype, reduction, sources, std::span(&destination, 1), share);
}

}  // namespace trireme::comm
