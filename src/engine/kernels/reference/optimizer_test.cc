#include <array>
#include <cmath>

#include "base/error.h"
#include "engine/kernels/reference/reference_kernels.h"
#include "engine/kernels/reference/test_tensor.h"

namespace trireme::kernels {
namespace {

using Tensor = TestTensor<double>;

TEST(ReferenceAdamW, TwoStepsByHand) {
  ReferenceKernels kernels;
  Tensor w(1, 1, 1.0);
  Tensor m(1, 1);
  Tensor v(1, 1);
  Tensor g(1, 1, 4.0);
  AdamW step{.learning_rate = 0.1,
             .beta1 = 0.9,
             .beta2 = 0.99,
             .epsilon = 0.5,
             .weight_decay = 0.2,
             .bias_correction1 = 0.1,
             .bias_correction2 = 0.01,
             .gradient_scale = 0.5};
  kernels.adamw(step, w.view(), g.view(), m.view(), v.view(), {});
  // g = 2: m = 0.2, v = 0.04; corrected 2 and 4. w = 1 - 0.02 - 0.1 * 2 / (2 + 0.5).
  EXPECT_NEAR(m(0, 0), 0.2, 1e-16);
  EXPECT_NEAR(v(0, 0), 0.04, 1e-16);
  EXPECT_NEAR(w(0, 0), 0.9, 1e-15);

  g(0, 0) = -2.0;
  step.bias_correction1 = 1.0 - 0.9 * 0.9;
  step.bias_correction2 = 1.0 - 0.99 * 0.99;
  kernels.adamw(step, w.view(), g.view(), m.view(), v.view(), {});
  // g = -1: m = 0.18 - 0.1 = 0.08, v = 0.0396 + 0.01 = 0.0496.
  EXPECT_NEAR(m(0, 0), 0.08, 1e-16);
  EXPECT_NEAR(v(0, 0), 0.0496, 1e-16);
  const double update = 0.08 / 0.19 / (std::sqrt(0.0496 / 0.0199) + 0.5);
  EXPECT_NEAR(w(0, 0), 0.9 - 0.1 * 0.2 * 0.9 - 0.1 * update, 1e-15);
}

TEST(ReferenceAdamW, APartStepsAsInTheWhole) {
  ReferenceKernels kernels;
  const AdamW step{.learning_rate = 1e-3, .weight_decay = 0.1, .bias_correction1 = 0.1, .bias_correction2 = 0.05};
  const auto g = TestTensor<float>::random(1, 19, "g");
  auto w = TestTensor<float>::random(1, 19, "w");
  auto part = w;
  TestTensor<float> m(1, 19);
  TestTensor<float> v(1, 19);
  kernels.adamw(step, w.view(), g.view(), m.view(), v.view(), {});
  TestTensor<float> m2(1, 5);
  TestTensor<float> v2(1, 5);
  kernels.adamw(step, column_range(part.view(), 7, 5), column_range(g.view(), 7, 5), m2.view(), v2.view(), {});
  for (std::int64_t i = 0; i < 5; ++i) EXPECT_EQ(part(0, 7 + i), w(0, 7 + i));
  EXPECT_THROW(kernels.adamw(step, w.view(), g.view(), m2.view(), v.view(), {}), InternalError);
}

TEST(ReferenceSquareBlocks, EightChainsABlock) {
  ReferenceKernels kernels;
  const auto x = TestTensor<float>::random(1, 256 + 11, "x");
  Tensor blocks(1, 2);
  kernels.square_blocks(x.view(), blocks.view());
  for (std::int64_t block = 0; block < 2; ++block) {
    std::array<double, 8> c{};
    for (std::int64_t e = 0; e < (block == 0 ? 256 : 11); ++e) {
      const double value = x(0, 256 * block + e);
      c[static_cast<std::size_t>(e % 8)] += value * value;
    }
    EXPECT_EQ(blocks(0, block), ((c[0] + c[1]) + (c[2] + c[3])) + ((c[4] + c[5]) + (c[6] + c[7])));
  }
}

TEST(ReferenceSquareBlocks, ShapesAreChecked) {
  ReferenceKernels kernels;
  auto x = Tensor::random(4, 100, "x");
  Tensor blocks(1, 2);
  EXPECT_NO_THROW(kernels.square_blocks(x.view(), blocks.view()));  // a contiguous matrix is flat
  EXPECT_THROW(kernels.square_blocks(column_range(x.view(), 0, 70), blocks.view()), InternalError);
  EXPECT_THROW(kernels.square_blocks(row_range(x.view(), 0, 2), blocks.view()), InternalError);
}

}  // namespace
}  // namespace trireme::kernels
