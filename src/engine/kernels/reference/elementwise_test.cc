#include <array>
#include <cstring>

#include "base/error.h"
#include "engine/kernels/reference/reference_kernels.h"
#include "engine/kernels/reference/test_tensor.h"

namespace trireme::kernels {
namespace {

using Tensor = TestTensor<double>;

constexpr std::array<std::uint64_t, 2> kStreams{11, 12};

Dropout make_dropout(double probability, std::int64_t sequence, std::int64_t columns) {
  return {.probability = probability,
          .seed = 5,
          .streams = kStreams,
          .sequence = sequence,
          .columns_total = columns,
          .column_begin = 0};
}

TEST(ReferenceElementwise, AddBiasAddFillCopyScale) {
  ReferenceKernels kernels;
  auto x = Tensor::random(3, 4, "x");
  const auto before = x;
  const auto bias = Tensor::random(1, 4, "bias");
  kernels.add_bias(x.view(), bias.view());
  EXPECT_EQ(x(2, 3), before(2, 3) + bias(0, 3));
  kernels.add(x.view(), before.view());
  EXPECT_EQ(x(1, 2), before(1, 2) + bias(0, 2) + before(1, 2));
  kernels.fill(column_range(x.view(), 1, 2), 2.5);
  EXPECT_EQ(x(0, 1), 2.5);
  EXPECT_NE(x(0, 0), 2.5);
  EXPECT_NE(x(0, 3), 2.5);
  Tensor y(3, 2);
  kernels.copy(column_range(before.view(), 2, 2), y.view());
  EXPECT_EQ(y(2, 0), before(2, 2));
  EXPECT_EQ(y(0, 1), before(0, 3));
  kernels.scale(column_range(y.view(), 1, 1), 0.1);
  EXPECT_EQ(y(0, 1), before(0, 3) * 0.1);
  EXPECT_EQ(y(2, 0), before(2, 2));
}

TEST(ReferenceElementwise, CopyTakesIntegers) {
  ReferenceKernels kernels;
  const std::array<std::int32_t, 6> from{1, 2, 3, 4, 5, 6};
  std::array<std::int32_t, 4> to{};
  const auto source = make_view(reinterpret_cast<const std::byte*>(from.data()), DType::kI32, 2, 3);
  const auto target = make_view(reinterpret_cast<std::byte*>(to.data()), DType::kI32, 2, 2);
  kernels.copy(column_range(source, 1, 2), target);
  EXPECT_EQ(to, (std::array<std::int32_t, 4>{2, 3, 5, 6}));
  EXPECT_THROW(kernels.copy(source, target), InternalError);
}

TEST(ReferenceElementwise, ColumnSumInChainsOf64Rows) {
  ReferenceKernels kernels;
  const auto x = TestTensor<float>::random(150, 3, "x");
  auto sums = TestTensor<float>::random(1, 3, "sums");
  const auto before = sums;
  std::array<float, 3> expected{};
  for (std::int64_t j = 0; j < 3; ++j) {
    std::array<float, 3> chains{};
    for (std::int64_t t = 0; t < 150; ++t) chains[static_cast<std::size_t>(t / 64)] += x(t, j);
    expected[static_cast<std::size_t>(j)] = (chains[0] + chains[1]) + chains[2];
  }
  kernels.column_sum(x.view(), sums.view(), true);
  for (std::int64_t j = 0; j < 3; ++j) {
    EXPECT_EQ(sums(0, j), before(0, j) + expected[static_cast<std::size_t>(j)]);
  }
  kernels.column_sum(x.view(), sums.view(), false);
  for (std::int64_t j = 0; j < 3; ++j) EXPECT_EQ(sums(0, j), expected[static_cast<std::size_t>(j)]);
}

TEST(ReferenceDropout, MaskIsAFunctionOfSeedStreamAndElement) {
  ReferenceKernels kernels;
  const std::int64_t sequence = 3;
  const auto x = Tensor::random(6, 5, "x");
  Tensor out(6, 5);
  kernels.apply_dropout(out.view(), x.view(), make_dropout(0.4, sequence, 5));
  int dropped = 0;
  for (std::int64_t t = 0; t < 6; ++t) {
    for (std::int64_t j = 0; j < 5; ++j) {
      const RandomKey key{5, kStreams[static_cast<std::size_t>(t / sequence)]};
      const bool kept = random_uniform(key, static_cast<std::uint64_t>(t % sequence * 5 + j)) >= 0.4;
      EXPECT_EQ(out(t, j), kept ? x(t, j) * (1.0 / 0.6) : 0.0);
      dropped += kept ? 0 : 1;
    }
  }
  EXPECT_GT(dropped, 4);
  EXPECT_LT(dropped, 22);
}

TEST(ReferenceDropout, AColumnShardDropsTheSameElements) {
  ReferenceKernels kernels;
  const auto x = Tensor::random(4, 6, "x");
  Tensor whole(4, 6);
  kernels.apply_dropout(whole.view(), x.view(), make_dropout(0.5, 2, 6));
  Tensor part(4, 2);
  Dropout dropout = make_dropout(0.5, 2, 6);
  dropout.column_begin = 3;
  kernels.apply_dropout(part.view(), column_range(x.view(), 3, 2), dropout);
  for (std::int64_t t = 0; t < 4; ++t) {
    for (std::int64_t j = 0; j < 2; ++j) EXPECT_EQ(part(t, j), whole(t, 3 + j));
  }
}

TEST(ReferenceDropout, APartOfTheRowsDropsTheSameElements) {
  ReferenceKernels kernels;
  const auto x = Tensor::random(6, 5, "x");
  Tensor whole(6, 5);
  kernels.apply_dropout(whole.view(), x.view(), make_dropout(0.5, 3, 5));
  for (std::int64_t rows : {1, 2, 3}) {  // of two, the second part lies in both sequences
    for (std::int64_t begin = 0; begin < 6; begin += rows) {
      Tensor part(rows, 5);
      Dropout dropout = make_dropout(0.5, 3, 5);
      dropout.row_begin = begin;
      kernels.apply_dropout(part.view(), row_range(x.view(), begin, rows), dropout);
      for (std::int64_t t = 0; t < rows; ++t) {
        for (std::int64_t j = 0; j < 5; ++j) EXPECT_EQ(part(t, j), whole(begin + t, j));
      }
    }
  }
}

TEST(ReferenceDropout, IsItsOwnBackward) {
  ReferenceKernels kernels;
  auto x = Tensor::random(4, 3, "x");
  const auto d_out = Tensor::random(4, 3, "d_out");
  const Dropout dropout = make_dropout(0.5, 2, 3);
  Tensor d_x(4, 3);
  kernels.apply_dropout(d_x.view(), d_out.view(), dropout);
  Tensor out(4, 3);
  expect_gradient(x, d_x, [&] {
    kernels.apply_dropout(out.view(), x.view(), dropout);
    return weighted_sum(d_out, out);
  });
}

TEST(ReferenceDropout, ADroppedValueIsZeroEvenIfItWasInfinite) {
  ReferenceKernels kernels;
  Tensor x(2, 64, HUGE_VAL);
  kernels.apply_dropout(x.view(), x.view(), make_dropout(0.5, 1, 64));
  EXPECT_NE(std::count(x.values.begin(), x.values.end(), 0.0), 0);
  EXPECT_EQ(std::count_if(x.values.begin(), x.values.end(), [](double v) { return std::isnan(v); }), 0);
}

TEST(ReferenceDropout, ZeroProbabilityNeedsNoStreams) {
  ReferenceKernels kernels;
  const auto x = Tensor::random(2, 3, "x");
  Tensor out(2, 3);
  kernels.apply_dropout(out.view(), x.view(), Dropout{});
  EXPECT_EQ(out.values, x.values);
}

TEST(ReferenceDropout, BadSpecificationsAreRefused) {
  ReferenceKernels kernels;
  Tensor x(6, 3);
  EXPECT_THROW(kernels.apply_dropout(x.view(), x.view(), make_dropout(1.0, 3, 3)), InternalError);
  EXPECT_THROW(kernels.apply_dropout(x.view(), x.view(), make_dropout(0.5, 2, 3)),
               InternalError);  // 3 streams wanted
  EXPECT_THROW(kernels.apply_dropout(x.view(), x.view(), make_dropout(0.5, 4, 3)), InternalError);
  EXPECT_THROW(kernels.apply_dropout(x.view(), x.view(), make_dropout(0.5, 3, 2)), InternalError);
  for (std::int64_t begin : {-6, 1, 6}) {
    Dropout dropout = make_dropout(0.5, 3, 3);
    dropout.row_begin = begin;
    EXPECT_THROW(kernels.apply_dropout(x.view(), x.view(), dropout), InternalError);
  }
}

TEST(ReferenceResidual, AddsBranchBiasAndResidual) {
  ReferenceKernels kernels;
  const auto residual = Tensor::random(4, 3, "residual");
  const auto x = Tensor::random(4, 3, "x");
  const auto bias = Tensor::random(1, 3, "bias");
  Tensor out(4, 3);
  kernels.residual_add(out.view(), residual.view(), x.view(), ConstTensorView(), Dropout{});
  EXPECT_EQ(out(3, 1), residual(3, 1) + x(3, 1));
  const Dropout dropout = make_dropout(0.5, 2, 3);
  Tensor branch = x;
  kernels.add_bias(branch.view(), bias.view());
  kernels.apply_dropout(branch.view(), branch.view(), dropout);
  Tensor in_place = residual;
  kernels.residual_add(in_place.view(), in_place.view(), x.view(), bias.view(), dropout);
  for (std::size_t i = 0; i < branch.values.size(); ++i) {
    EXPECT_EQ(in_place.values[i], residual.values[i] + branch.values[i]);
  }
}

}  // namespace
}  // namespace trireme::kernels
