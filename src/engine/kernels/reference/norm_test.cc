#include <cmath>

#include "base/error.h"
#include "engine/kernels/reference/reference_kernels.h"
#include "engine/kernels/reference/test_tensor.h"

namespace trireme::kernels {
namespace {

using Tensor = TestTensor<double>;

constexpr std::int64_t kRows = 3;
constexpr std::int64_t kColumns = 5;
constexpr double kEpsilon = 1e-5;

class ReferenceNorm : public testing::TestWithParam<NormType> {
 protected:
  ReferenceNorm()
      : x_(Tensor::random(kRows, kColumns, "x")),
        weight_(Tensor::random(1, kColumns, "weight")),
        bias_(Tensor::random(1, kColumns, "bias")),
        d_y_(Tensor::random(kRows, kColumns, "d_y")),
        y_(kRows, kColumns),
        stats_(kRows, 2) {}

  bool layer() const { return GetParam() == NormType::kLayerNorm; }
  ConstTensorView bias_view() const { return layer() ? ConstTensorView(bias_.view()) : ConstTensorView(); }
  double forward() {
    kernels_.norm_forward(GetParam(), x_.view(), weight_.view(), bias_view(), kEpsilon, y_.view(), stats_.view());
    return weighted_sum(d_y_, y_);
  }

  ReferenceKernels kernels_;
  Tensor x_, weight_, bias_, d_y_, y_, stats_;
};

TEST_P(ReferenceNorm, ForwardIsTheDefinition) {
  forward();
  for (std::int64_t t = 0; t < kRows; ++t) {
    double mean = 0;
    for (std::int64_t j = 0; j < kColumns; ++j) mean += layer() ? x_(t, j) / kColumns : 0.0;
    double variance = 0;
    for (std::int64_t j = 0; j < kColumns; ++j) variance += (x_(t, j) - mean) * (x_(t, j) - mean) / kColumns;
    EXPECT_NEAR(stats_(t, 0), mean, 1e-15);
    EXPECT_NEAR(stats_(t, 1), 1.0 / std::sqrt(variance + kEpsilon), 1e-14);
    for (std::int64_t j = 0; j < kColumns; ++j) {
      const double scaled = (x_(t, j) - mean) / std::sqrt(variance + kEpsilon) * weight_(0, j);
      EXPECT_NEAR(y_(t, j), scaled + (layer() ? bias_(0, j) : 0.0), 1e-14);
    }
  }
}

TEST_P(ReferenceNorm, ApplyGivesTheSameBits) {
  forward();
  Tensor again(kRows, kColumns);
  kernels_.norm_apply(GetParam(), x_.view(), stats_.view(), weight_.view(), bias_view(), again.view());
  EXPECT_EQ(again.values, y_.values);
}

TEST_P(ReferenceNorm, InputGradient) {
  forward();
  Tensor d_x(kRows, kColumns);
  kernels_.norm_backward_input(GetParam(), d_y_.view(), x_.view(), stats_.view(), weight_.view(), ConstTensorView(),
                               d_x.view());
  expect_gradient(x_, d_x, [&] { return forward(); });

  forward();
  const auto addend = Tensor::random(kRows, kColumns, "addend");
  Tensor sum = addend;
  kernels_.norm_backward_input(GetParam(), d_y_.view(), x_.view(), stats_.view(), weight_.view(), sum.view(),
                               sum.view());
  for (std::size_t i = 0; i < sum.values.size(); ++i) {
    EXPECT_EQ(sum.values[i], addend.values[i] + d_x.values[i]);
  }
}

TEST_P(ReferenceNorm, WeightGradient) {
  forward();
  Tensor d_weight(1, kColumns, 7.0);
  Tensor d_bias(1, kColumns, 7.0);
  const TensorView d_bias_view = layer() ? d_bias.view() : TensorView();
  const auto backward = [&](bool accumulate) {
    kernels_.norm_backward_weight(GetParam(), d_y_.view(), x_.view(), stats_.view(), d_weight.view(), d_bias_view,
                                  accumulate);
  };
  backward(false);
  expect_gradient(weight_, d_weight, [&] { return forward(); });
  if (layer()) expect_gradient(bias_, d_bias, [&] { return forward(); });
  const Tensor once = d_weight;
  forward();
  backward(true);
  EXPECT_EQ(d_weight(0, 3), once(0, 3) + once(0, 3));
}

INSTANTIATE_TEST_SUITE_P(Types, ReferenceNorm, testing::Values(NormType::kLayerNorm, NormType::kRmsNorm));

TEST(ReferenceNormChecks, RmsHasNoBias) {
  ReferenceKernels kernels;
  Tensor x(2, 3, 1.0);
  Tensor weight(1, 3);
  Tensor stats(2, 2);
  EXPECT_THROW(kernels.norm_forward(NormType::kRmsNorm, x.view(), weight.view(), weight.view(), kEpsilon, x.view(),
                                    stats.view()),
               InternalError);
  EXPECT_THROW(kernels.norm_backward_weight(NormType::kRmsNorm, x.view(), x.view(), stats.view(), weight.view(),
                                            weight.view(), false),
               InternalError);
}

}  // namespace
}  // namespace trireme::kernels
