#include "engine/kernels/tensor.h"

#include <array>

#include <gtest/gtest.h>

#include "base/error.h"

namespace trireme::kernels {
namespace {

TEST(TensorView, PartsOfAView) {
  std::array<std::byte, 96> memory{};
  const TensorView whole = make_view(memory.data(), DType::kF32, 4, 6);
  EXPECT_EQ(whole.elements(), 24);
  EXPECT_TRUE(whole.contiguous());
  const TensorView rows = row_range(whole, 1, 2);
  EXPECT_EQ(rows.data, memory.data() + 24);
  EXPECT_EQ(rows.rows, 2);
  EXPECT_TRUE(rows.contiguous());
  const TensorView columns = column_range(rows, 2, 3);
  EXPECT_EQ(columns.data, memory.data() + 24 + 8);
  EXPECT_EQ(columns.row_stride, 6);
  EXPECT_FALSE(columns.contiguous());
  EXPECT_TRUE(row_range(columns, 0, 1).contiguous());
  EXPECT_EQ(flattened(rows).columns, 12);
  EXPECT_EQ(flattened(rows).rows, 1);
  EXPECT_TRUE(TensorView().empty());
  const ConstTensorView read_only = columns;
  EXPECT_EQ(read_only.data, columns.data);
}

TEST(TensorView, PartsOutsideAreRefused) {
  std::array<std::byte, 96> memory{};
  const TensorView whole = make_view(memory.data(), DType::kF32, 4, 6);
  EXPECT_THROW(row_range(whole, 3, 2), InternalError);
  EXPECT_THROW(row_range(whole, -1, 2), InternalError);
  EXPECT_THROW(column_range(whole, 0, 7), InternalError);
  EXPECT_THROW(flattened(column_range(whole, 0, 2)), InternalError);
}

}  // namespace
}  // namespace trireme::kernels
