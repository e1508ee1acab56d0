#include "engine/optim/optimizer.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

namespace trireme::optim {
namespace {

kernels::ConstTensorView view(const std::vector<float>& x) {
  return kernels::make_view(reinterpret_cast<const std::byte*>(x.data()), DType::kF32, 1,
                            static_cast<std::int64_t>(x.size()));
}

std::vector<float> numbers(std::size_t count) {
  std::vector<float> x(count);
  for (std::size_t i = 0; i < count; ++i) x[i] = std::sin(static_cast<float>(i) * 0.37F) * 1e-3F;
  return x;
}

double norm_in_pieces(const std::vector<float>& x, std::int64_t piece) {
  auto device = kernels::make_reference_device();
  std::vector<double> scratch(static_cast<std::size_t>(piece / 256));
  ExactSum sum;
  add_squares(*device, view(x), piece,
              kernels::make_view(reinterpret_cast<std::byte*>(scratch.data()), DType::kF64, 1,
                                 static_cast<std::int64_t>(scratch.size())),
              sum);
  return sum.value();
}

TEST(GradientNorm, DoesNotDependOnThePiece) {
  const std::vector<float> x = numbers(5000);
  const double whole = norm_in_pieces(x, 8192);
  EXPECT_EQ(norm_in_pieces(x, 256), whole);
  EXPECT_EQ(norm_in_pieces(x, 1024), whole);
  double plain = 0.0;
  for (float g : x) plain += static_cast<double>(g) * static_cast<double>(g);
  EXPECT_NEAR(whole, plain, 1e-12 * plain);
}

TEST(Clip, ScalesOnlyWhatIsTooLong) {
  EXPECT_EQ(clip_factor({.clip_norm = 1.0}, 0.5), 1.0);
  EXPECT_EQ(clip_factor({.clip_norm = 1.0}, 4.0), 0.25);
  EXPECT_EQ(clip_factor({.clip_norm = 0.0}, 4.0), 1.0);
}

TEST(AdamW, FirstStepMovesByTheLearningRate) {
  // With bias correction the first step is lr * sign(g) (Kingma and Ba 2015), plus decoupled decay.
  auto device = kernels::make_reference_device();
  std::vector<float> w{1.0F, -2.0F}, g{0.5F, -0.25F}, m(2), v(2);
  const auto mutable_view = [](std::vector<float>& x) {
    return kernels::make_view(reinterpret_cast<std::byte*>(x.data()), DType::kF32, 1, 2);
  };
  const Update update{.config = {.weight_decay = 0.1}, .learning_rate = 0.01, .step = 1, .gradient_scale = 1.0};
  adamw_update(device->kernels(), update, true, mutable_view(w), view(g), mutable_view(m), mutable_view(v), {});
  EXPECT_NEAR(w[0], 1.0 - 0.01 * 0.1 * 1.0 - 0.01, 1e-6);
  EXPECT_NEAR(w[1], -2.0 + 0.01 * 0.1 * 2.0 + 0.01, 1e-6);
}

}  // namespace
}  // namespace trireme::optim
