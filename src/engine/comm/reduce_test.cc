#include "engine/comm/reduce.h"

#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.h"

namespace trireme::comm {
namespace {

template <class T>
std::vector<T> reduce(DType dtype, Reduction reduction, const std::vector<std::vector<T>>& ranks, Share share) {
  std::vector<const std::byte*> sources;
  sources.reserve(ranks.size());
  for (const auto& rank : ranks) sources.push_back(reinterpret_cast<const std::byte*>(rank.data()));
  std::vector<T> result(ranks.front().size());
  reduce_in_order(dtype, reduction, sources, reinterpret_cast<std::byte*>(result.data()), share);
  return result;
}

TEST(ReduceInOrder, AddsRanksInAscendingOrder) {
  const float big = 0x1p25F;
  EXPECT_EQ(reduce<float>(DType::kF32, Reduction::kSum, {{big}, {1}, {1}}, {0, 1}), std::vector<float>{big});
  EXPECT_EQ(reduce<float>(DType::kF32, Reduction::kSum, {{1}, {1}, {big}}, {0, 1}), std::vector<float>{big + 2});
  const double large = 0x1p54;
  EXPECT_EQ(reduce<double>(DType::kF64, Reduction::kSum, {{1}, {1}, {large}}, {0, 1}), std::vector<double>{large + 2});
}

TEST(ReduceInOrder, NarrowNumbersAreRoundedOnce) {
  const auto bf16 = [](float value) {
    std::uint16_t narrow = 0;
    convert_from_f32(DType::kBF16, std::span(&value, 1), std::as_writable_bytes(std::span(&narrow, 1)));
    return narrow;
  };
  // 1 + 2^-8 lies halfway between two numbers of 8 bits, and would be rounded to 1.
  EXPECT_EQ(reduce<std::uint16_t>(DType::kBF16, Reduction::kSum, {{bf16(1)}, {bf16(0x1p-8F)}, {bf16(0x1p-8F)}}, {0, 1}),
            std::vector<std::uint16_t>{bf16(1 + 0x1p-7F)});
  const std::vector<std::uint16_t> ones(5000, bf16(1));
  EXPECT_EQ(reduce<std::uint16_t>(DType::kBF16, Reduction::kSum, {ones, ones}, {0, 5000}),
            std::vector<std::uint16_t>(5000, bf16(2)));
}

TEST(ReduceInOrder, TouchesTheShareAlone) {
  EXPECT_EQ(reduce<std::int32_t>(DType::kI32, Reduction::kSum, {{1, 2, 3, 4}, {10, 20, 30, 40}}, {1, 3}),
            (std::vector<std::int32_t>{0, 22, 33, 0}));
  EXPECT_EQ(reduce<std::int32_t>(DType::kI32, Reduction::kSum, {{1}, {10}}, {0, 0}), std::vector<std::int32_t>{0});
}

TEST(ReduceInOrder, ManyElementsInBlocks) {
  std::vector<std::int64_t> a(5000);
  std::vector<std::int64_t> b(5000);
  for (std::size_t i = 0; i < a.size(); ++i) {
    a[i] = static_cast<std::int64_t>(i);
    b[i] = static_cast<std::int64_t>(2 * i);
  }
  const auto sum = reduce<std::int64_t>(DType::kI64, Reduction::kSum, {a, b}, {0, 5000});
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_EQ(sum[i], static_cast<std::int64_t>(3 * i));
}

TEST(ReduceInOrder, IntegersWrapAround) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(reduce<std::int64_t>(DType::kI64, Reduction::kSum, {{kMost}, {2}, {-2}}, {0, 1}),
            std::vector<std::int64_t>{kMost});
}

TEST(ReduceInOrder, Maximum) {
  EXPECT_EQ(reduce<float>(DType::kF32, Reduction::kMax, {{1, 5}, {3, -2}}, {0, 2}), (std::vector<float>{3, 5}));
  EXPECT_EQ(reduce<double>(DType::kF64, Reduction::kMax, {{-1}, {-3}}, {0, 1}), std::vector<double>{-1});
}

TEST(ReduceInOrder, OtherTypesAreRefused) {
  EXPECT_THROW(check_reduction(DType::kBF16, Reduction::kMax), InternalError);
  EXPECT_THROW(check_reduction(DType::kF16, Reduction::kMax), InternalError);
  EXPECT_THROW(check_reduction(DType::kI32, Reduction::kMax), InternalError);
  EXPECT_NO_THROW(check_reduction(DType::kI32, Reduction::kSum));
}

}  // namespace
}  // namespace trireme::comm
