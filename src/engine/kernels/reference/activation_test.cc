#include <cmath>
#include <tuple>

#include "base/error.h"
#include "engine/kernels/reference/reference_kernels.h"
#include "engine/kernels/reference/test_tensor.h"

namespace trireme::kernels {
namespace {

using Tensor = TestTensor<double>;

class ReferenceActivation : public testing::TestWithParam<std::tuple<ActivationType, bool>> {
 protected:
  static constexpr std::int64_t kRows = 3;
  static constexpr std::int64_t kColumns = 7;
  ActivationType type() const { return std::get<0>(GetParam()); }
  bool gated() const { return std::get<1>(GetParam()); }
  ConstTensorView gate_view() const { return gated() ? ConstTensorView(gate_.view()) : ConstTensorView(); }
  double forward() {
    kernels_.activation_forward(type(), gate_view(), up_.view(), out_.view());
    return weighted_sum(d_out_, out_);
  }

  ReferenceKernels kernels_;
  Tensor gate_ = Tensor::random(kRows, kColumns, "gate");
  Tensor up_ = Tensor::random(kRows, kColumns, "up");
  Tensor d_out_ = Tensor::random(kRows, kColumns, "d_out");
  Tensor out_ = Tensor(kRows, kColumns);
};

TEST_P(ReferenceActivation, Gradient) {
  Tensor d_up = d_out_;  // in place
  Tensor d_gate(kRows, kColumns);
  kernels_.activation_backward(type(), d_up.view(), gate_view(), up_.view(), gated() ? d_gate.view() : TensorView(),
                               d_up.view());
  expect_gradient(up_, d_up, [&] { return forward(); });
  if (gated()) expect_gradient(gate_, d_gate, [&] { return forward(); });
}

INSTANTIATE_TEST_SUITE_P(Types, ReferenceActivation,
                         testing::Combine(testing::Values(ActivationType::kGeluTanh, ActivationType::kSilu,
                                                          ActivationType::kRelu),
                                          testing::Bool()));

TEST(ReferenceActivationValues, KnownPoints) {
  ReferenceKernels kernels;
  Tensor x(1, 3);
  x.values = {-1.0, 0.0, 2.0};
  Tensor y(1, 3);
  kernels.activation_forward(ActivationType::kRelu, ConstTensorView(), x.view(), y.view());
  EXPECT_EQ(y.values, (std::vector<double>{0.0, 0.0, 2.0}));
  kernels.activation_forward(ActivationType::kSilu, ConstTensorView(), x.view(), y.view());
  EXPECT_NEAR(y(0, 2), 2.0 / (1.0 + std::exp(-2.0)), 1e-15);
  kernels.activation_forward(ActivationType::kGeluTanh, ConstTensorView(), x.view(), y.view());
  const double inner = std::sqrt(2.0 / std::acos(-1.0)) * (2.0 + 0.044715 * 8.0);
  EXPECT_NEAR(y(0, 2), 1.0 + std::tanh(inner), 1e-15);
}

TEST(ReferenceActivationValues, AGradientWithoutItsGateIsRefused) {
  ReferenceKernels kernels;
  Tensor x(1, 3);
  EXPECT_THROW(
      kernels.activation_backward(ActivationType::kSilu, x.view(), ConstTensorView(), x.view(), x.view(), x.view()),
      InternalError);
}

}  // namespace
}  // namespace trireme::kernels
