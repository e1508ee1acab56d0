#include "base/dtype.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include <gtest/gtest.h>

namespace trireme {
namespace {

TEST(DTypeTest, NamesAndSizesAreThoseOfSafetensors) {
  EXPECT_EQ(dtype_name(DType::kBF16), "BF16");
  EXPECT_EQ(dtype_size(DType::kF32), 4);
  EXPECT_EQ(dtype_size(DType::kF64), 8);
  EXPECT_EQ(dtype_size(DType::kBF16), 2);
  EXPECT_EQ(dtype_size(DType::kF16), 2);
  EXPECT_EQ(dtype_size(DType::kI32), 4);
  EXPECT_EQ(dtype_size(DType::kI64), 8);
}

TEST(DTypeTest, EachNameParsesToItself) {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16, DType::kI32, DType::kI64}) {
    EXPECT_EQ(parse_dtype(dtype_name(dtype)).value(), dtype);
  }
}

TEST(DTypeTest, UnknownNamesAreRefused) {
  const Result<DType> result = parse_dtype("F8_E4M3");
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.failure().sentence().find("F8_E4M3"), std::string::npos);
  EXPECT_NE(result.failure().sentence().find("BF16"), std::string::npos);
}

TEST(DTypeTest, AnUnknownValueIsABrokenInvariant) { EXPECT_THROW(dtype_size(static_cast<DType>(99)), InternalError); }

float widened(DType dtype, std::uint16_t bits) {
  float out = 0;
  convert_to_f32(dtype, std::as_bytes(std::span(&bits, 1)), {&out, 1});
  return out;
}

std::uint16_t narrowed(DType dtype, float value) {
  std::uint16_t bits = 0;
  convert_from_f32(dtype, {&value, 1}, std::as_writable_bytes(std::span(&bits, 1)));
  return bits;
}

// The value of a 16-bit pattern by the definition of its format.
double defined_value(std::uint16_t bits, int mantissa_bits, int bias) {
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const int exponent = (bits & 0x7fff) >> mantissa_bits;
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, 1 - bias - mantissa_bits)
                                         : std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

TEST(DTypeConversion, EachHalfWidensExactlyAndComesBack) {
  const struct {
    DType dtype;
    int mantissa_bits;
    int bias;
    int infinity;
  } formats[] = {{DType::kF16, 10, 15, 0x7c00}, {DType::kBF16, 7, 127, 0x7f80}};
  for (const auto& format : formats) {
    for (int i = 0; i < 65536; ++i) {
      const auto bits = static_cast<std::uint16_t>(i);
      const float value = widened(format.dtype, bits);
      if ((bits & 0x7fff) > format.infinity) {
        ASSERT_TRUE(std::isnan(value)) << i;
        ASSERT_TRUE(std::isnan(widened(format.dtype, narrowed(format.dtype, value)))) << i;
        continue;
      }
      if ((bits & 0x7fff) == format.infinity) {
        ASSERT_TRUE(std::isinf(value)) << i;
      } else {
        ASSERT_EQ(static_cast<double>(value), defined_value(bits, format.mantissa_bits, format.bias)) << i;
      }
      ASSERT_EQ(std::signbit(value), bits >= 0x8000) << i;
      ASSERT_EQ(narrowed(format.dtype, value), bits) << i;
    }
  }
}

// Between two neighbours: the nearer one, in the middle the even one.
TEST(DTypeConversion, NarrowingRoundsToTheNearestTiesToEven) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    const int infinity = dtype == DType::kF16 ? 0x7c00 : 0x7f80;
    for (int i = 0; i + 1 < infinity; ++i) {
      const float low = widened(dtype, static_cast<std::uint16_t>(i));
      const float high = widened(dtype, static_cast<std::uint16_t>(i + 1));
      const float middle = low + (high - low) / 2;
      ASSERT_EQ(narrowed(dtype, middle), i + (i & 1)) << i;
      ASSERT_EQ(narrowed(dtype, std::nextafter(middle, low)), i) << i;
      ASSERT_EQ(narrowed(dtype, std::nextafter(middle, high)), i + 1) << i;
      ASSERT_EQ(narrowed(dtype, -middle), 0x8000 + i + (i & 1)) << i;
    }
  }
}

TEST(DTypeConversion, BeyondTheRangeIsInfinity) {
  EXPECT_EQ(narrowed(DType::kF16, 65519.0f), 0x7bff);
  EXPECT_EQ(narrowed(DType::kF16, 65520.0f), 0x7c00);
  EXPECT_EQ(narrowed(DType::kF16, 1e30f), 0x7c00);
  EXPECT_EQ(narrowed(DType::kF16, -1e30f), 0xfc00);
  EXPECT_EQ(narrowed(DType::kBF16, std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(narrowed(DType::kF16, 1e-30f), 0);
  EXPECT_EQ(narrowed(DType::kF16, 0x1p-25f), 0);
  EXPECT_EQ(narrowed(DType::kF16, std::nextafter(0x1p-25f, 1.0f)), 1);
}

TEST(DTypeConversion, Float32IsCopied) {
  const std::vector<float> values{1.5f, -0.0f, 0x1p-140f};
  std::vector<std::byte> raw(12);
  convert_from_f32(DType::kF32, values, raw);
  std::vector<float> back(3);
  convert_to_f32(DType::kF32, raw, back);
  EXPECT_EQ(std::memcmp(back.data(), values.data(), 12), 0);
  convert_to_f32(DType::kBF16, {}, {});
}

TEST(DTypeConversion, OtherTypesAndSizesAreABrokenInvariant) {
  std::vector<float> values(2);
  std::vector<std::byte> raw(8);
  EXPECT_THROW(convert_to_f32(DType::kI32, raw, values), InternalError);
  EXPECT_THROW(convert_to_f32(DType::kF16, raw, values), InternalError);
  EXPECT_THROW(convert_from_f32(DType::kI32, values, raw), InternalError);
  EXPECT_FALSE(converts_to_f32(DType::kF64));
}

}  // namespace
}  // namespace trireme
