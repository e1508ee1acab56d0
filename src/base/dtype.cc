#include "base/dtype.h"

#include <array>
#include <bit>
#include <cstring>
#include <string>

#include "base/check.h"

namespace trireme {
namespace {

static_assert(std::endian::native == std::endian::little, "files are read and written as memory holds them");

struct Entry {
  DType dtype;
  std::string_view name;
  std::int64_t size;
};

constexpr std::array<Entry, 6> kEntries{{{DType::kF32, "F32", 4},
                                         {DType::kF64, "F64", 8},
                                         {DType::kBF16, "BF16", 2},
                                         {DType::kF16, "F16", 2},
                                         {DType::kI32, "I32", 4},
                                         {DType::kI64, "I64", 8}}};

const Entry& entry_of(DType dtype) {
  for (const Entry& entry : kEntries) {
    if (entry.dtype == dtype) return entry;
  }
  detail::check_failed("known dtype", std::to_string(static_cast<int>(dtype)), "");
}

// Layout of IEEE binary16: sign, 5 bits of exponent (bias 15), 10 of mantissa.
float f16_to_f32(std::uint16_t half) {
  const std::uint32_t sign = std::uint32_t{half & 0x8000u} << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1fu;
  const std::uint32_t mantissa = half & 0x3ffu;
  if (exponent == 0) {  // zero and subnormals: mantissa * 2^-24, exact in float32
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
  }
  const std::uint32_t wide = exponent == 0x1f ? 0xffu : exponent + (127 - 15);
  return std::bit_cast<float>(sign | (wide << 23) | (mantissa << 13));
}

// `bits` without its lowest `count` bits, rounded to the nearest, ties to even.
std::uint32_t round_off(std::uint32_t bits, int count) {
  const std::uint32_t half = std::uint32_t{1} << (count - 1);
  const std::uint32_t odd = (bits >> count) & 1;
  return (bits + half - 1 + odd) >> count;
}

std::uint16_t f32_to_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u);   // NaN
  if (magnitude >= 0x47800000u) return static_cast<std::uint16_t>(sign | 0x7c00u);  // 2^16 and above
  const int exponent = static_cast<int>(magnitude >> 23) - 127;
  if (exponent >= -14) {  // a carry out of the mantissa is the next exponent, up to infinity
    return static_cast<std::uint16_t>(sign | (round_off(magnitude, 13) - (std::uint32_t{127 - 15} << 10)));
  }
  if (exponent < -25) return sign;  // below half of the smallest subnormal
  const std::uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
  return static_cast<std::uint16_t>(sign | round_off(mantissa, -1 - exponent));
}

std::uint16_t f32_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);  // NaN
  return static_cast<std::uint16_t>(round_off(bits, 16));
}

float bf16_to_f32(std::uint16_t value) { return std::bit_cast<float>(std::uint32_t{value} << 16); }

template <float (*kWiden)(std::uint16_t)>
void widen_all(std::span<const std::byte> raw, std::span<float> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::uint16_t narrow = 0;
    std::memcpy(&narrow, raw.data() + 2 * i, sizeof narrow);
    out[i] = kWiden(narrow);
  }
}
template <std::uint16_t (*kNarrow)(float)>
void narrow_all(std::span<const float> values, std::span<std::byte> raw) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint16_t element = kNarrow(values[i]);
    std::memcpy(raw.data() + 2 * i, &element, sizeof element);
  }
}

void check_conversion(DType dtype, std::size_t raw_bytes, std::size_t elements) {
  TRIREME_CHECK(converts_to_f32(dtype), "{} does not convert to F32", dtype_name(dtype));
  TRIREME_CHECK_EQ(raw_bytes, elements * static_cast<std::size_t>(dtype_size(dtype)));
}

}  // namespace

std::int64_t dtype_size(DType dtype) { return entry_of(dtype).size; }

std::string_view dtype_name(DType dtype) { return entry_of(dtype).name; }

Result<DType> parse_dtype(std::string_view name) {
  for (const Entry& entry : kEntries) {
    if (entry.name == name) return entry.dtype;
  }
  return Failure{"dtype", std::string(name), "is not an element type that this program reads",
                 "F32, F64, BF16, F16, I32, I64"};
}

bool converts_to_f32(DType dtype) { return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16; }

void convert_to_f32(DType dtype, std::span<const std::byte> raw, std::span<float> out) {
  check_conversion(dtype, raw.size(), out.size());
  if (out.empty()) return;
  if (dtype == DType::kF32) {
    std::memcpy(out.data(), raw.data(), raw.size());
    return;
  }
  return dtype == DType::kBF16 ? widen_all<bf16_to_f32>(raw, out) : widen_all<f16_to_f32>(raw, out);
}

void convert_from_f32(DType dtype, std::span<const float> values, std::span<std::byte> raw) {
  check_conversion(dtype, raw.size(), values.size());
  if (values.empty()) return;
  if (dtype == DType::kF32) {
    std::memcpy(raw.data(), values.data(), raw.size());
    return;
  }
  return dtype == DType::kBF16 ? narrow_all<f32_to_bf16>(values, raw) : narrow_all<f32_to_f16>(values, raw);
}

}  // namespace trireme
