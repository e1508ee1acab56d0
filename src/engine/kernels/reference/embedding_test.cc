#include <array>
#include <cmath>

#include "base/error.h"
#include "engine/kernels/reference/reference_kernels.h"
#include "engine/kernels/reference/test_tensor.h"

namespace trireme::kernels {
namespace {

using Tensor = TestTensor<double>;

constexpr std::array<std::int32_t, 5> kIds{2, 0, 2, 6, 4};  // of 7 rows

TEST(ReferenceEmbedding, VocabularyPartsAddUpToTheWhole) {
  ReferenceKernels kernels;
  const auto table = Tensor::random(7, 3, "table");
  Tensor whole(5, 3);
  kernels.embedding_forward(kIds, table.view(), 0, whole.view());
  for (std::int64_t t = 0; t < 5; ++t) EXPECT_EQ(whole(t, 1), table(kIds[static_cast<std::size_t>(t)], 1));
  Tensor low(5, 3, 9.0);
  Tensor high(5, 3, 9.0);
  kernels.embedding_forward(kIds, row_range(table.view(), 0, 4), 0, low.view());
  kernels.embedding_forward(kIds, row_range(table.view(), 4, 3), 4, high.view());
  kernels.add(low.view(), high.view());
  EXPECT_EQ(low.values, whole.values);
}

TEST(ReferenceEmbedding, Gradient) {
  ReferenceKernels kernels;
  auto table = Tensor::random(7, 3, "table");
  const auto d_out = Tensor::random(5, 3, "d_out");
  Tensor out(5, 3);
  Tensor d_table(7, 3, 5.0);
  kernels.embedding_backward(kIds, d_out.view(), 0, d_table.view(), false);
  expect_gradient(table, d_table, [&] {
    kernels.embedding_forward(kIds, table.view(), 0, out.view());
    return weighted_sum(d_out, out);
  });
  const Tensor once = d_table;
  kernels.embedding_backward(kIds, d_out.view(), 0, d_table.view(), true);
  EXPECT_EQ(d_table(6, 2), once(6, 2) + d_out(3, 2));
  Tensor part(3, 3);
  kernels.embedding_backward(kIds, d_out.view(), 4, part.view(), false);
  for (std::int64_t r = 0; r < 3; ++r) EXPECT_EQ(part(r, 0), once(4 + r, 0));
}

TEST(ReferencePosition, Gradient) {
  ReferenceKernels kernels;
  auto table = Tensor::random(4, 2, "table");  // a row more than the sequence has
  const auto d_out = Tensor::random(6, 2, "d_out");
  const auto start = Tensor::random(6, 2, "start");
  Tensor d_table(4, 2, 5.0);
  kernels.position_backward(d_out.view(), 3, d_table.view(), false);
  EXPECT_EQ(d_table(3, 0), 0.0);
  expect_gradient(table, d_table, [&] {
    Tensor out = start;
    kernels.position_forward(table.view(), 3, out.view());
    return weighted_sum(d_out, out);
  });
  const Tensor once = d_table;
  kernels.position_backward(d_out.view(), 3, d_table.view(), true);
  EXPECT_EQ(d_table(1, 1), once(1, 1) + once(1, 1));
  EXPECT_THROW(kernels.position_backward(d_out.view(), 5, d_table.view(), true), InternalError);
  Tensor five(5, 2);
  EXPECT_THROW(kernels.position_forward(table.view(), 4, five.view()), InternalError);
}

class ReferenceRotary : public testing::Test {
 protected:
  static constexpr std::int64_t kSequence = 3;
  static constexpr std::int64_t kHeadDim = 4;
  ReferenceRotary() : table_(kSequence, kHeadDim) {
    for (std::int64_t p = 0; p < kSequence; ++p) {
      for (std::int64_t j = 0; j < kHeadDim / 2; ++j) {
        const double angle = static_cast<double>(p) * std::pow(10000.0, -static_cast<double>(j) / 2.0);
        table_(p, j) = std::cos(angle);
        table_(p, kHeadDim / 2 + j) = std::sin(angle);
      }
    }
  }
  ReferenceKernels kernels_;
  Tensor table_;
};

TEST_F(ReferenceRotary, TurnsPairsByTheAngleOfTheirPosition) {
  const auto x = Tensor::random(6, 8, "x");
  Tensor y = x;
  kernels_.rotary(y.view(), 2, kHeadDim, table_.view(), kSequence, false);
  // Row 4 is position 1; head 1, pair 0 = columns 4 and 6, angle 1.
  EXPECT_NEAR(y(4, 4), x(4, 4) * std::cos(1.0) - x(4, 6) * std::sin(1.0), 1e-15);
  EXPECT_NEAR(y(4, 6), x(4, 6) * std::cos(1.0) + x(4, 4) * std::sin(1.0), 1e-15);
  for (std::int64_t j = 0; j < 8; ++j) EXPECT_EQ(y(3, j), x(3, j));  // position 0 does not turn
}

TEST_F(ReferenceRotary, InverseTurnsBack) {
  const auto x = Tensor::random(6, 8, "x");
  Tensor y = x;
  kernels_.rotary(y.view(), 2, kHeadDim, table_.view(), kSequence, false);
  kernels_.rotary(y.view(), 2, kHeadDim, table_.view(), kSequence, true);
  for (std::size_t i = 0; i < x.values.size(); ++i) EXPECT_NEAR(y.values[i], x.values[i], 1e-15);
}

TEST_F(ReferenceRotary, InverseIsTheGradient) {
  auto x = Tensor::random(6, 8, "x");
  const auto d_y = Tensor::random(6, 8, "d_y");
  Tensor d_x = d_y;
  kernels_.rotary(d_x.view(), 2, kHeadDim, table_.view(), kSequence, true);
  expect_gradient(x, d_x, [&] {
    Tensor y = x;
    kernels_.rotary(y.view(), 2, kHeadDim, table_.view(), kSequence, false);
    return weighted_sum(d_y, y);
  });
}

TEST_F(ReferenceRotary, AnOddHeadIsRefused) {
  Tensor x(6, 6);
  Tensor odd(3, 3);
  EXPECT_THROW(kernels_.rotary(x.view(), 2, 3, odd.view(), kSequence, false), InternalError);
}

}  // namespace
}  // namespace trireme::kernels
