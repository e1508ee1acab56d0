#include "base/dtype.h"

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

TEST(DTypeTest, AnUnknownValueIsABrokenInvariant) {
  EXPECT_THROW(dtype_size(static_cast<DType>(99)), InternalError);
}

}  // namespace
}  // namespace trireme
