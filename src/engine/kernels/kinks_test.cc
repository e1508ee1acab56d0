#include "engine/kernels/kinks.h"

#include <gtest/gtest.h>

namespace trireme::kernels {
namespace {

using Numbers = std::vector<double>;

TensorView view(Numbers& values) {
  return make_view(reinterpret_cast<std::byte*>(values.data()), DType::kF64, 2, std::ssize(values) / 2);
}

Numbers backward(Kinks& kinks, Numbers input) {
  Numbers d_out{1, 2, 3, 4, 5, 6}, d_in(6);
  make_kink_device(kinks)->kernels().activation_backward(ActivationType::kRelu, view(d_out), {}, view(input), {},
                                                         view(d_in));
  return d_in;
}

TEST(Kinks, FindsTheNearestInputsAndTakesTheOtherSideThere) {
  const Numbers input{1e-9, -1, 2, 0, -1e-8, 1e-3};
  Kinks kinks{.near = 1e-6};
  EXPECT_EQ(backward(kinks, input), (Numbers{1, 0, 3, 0, 0, 6}));
  ASSERT_EQ(kinks.found.size(), 2U);  // an exact zero is none
  EXPECT_EQ(kinks.found[0].element, 0);
  EXPECT_EQ(kinks.found[1].element, 4);
  EXPECT_EQ(kinks.calls, 1);

  Kinks other{.flip = true, .found = kinks.found};
  EXPECT_EQ(backward(other, input), (Numbers{0, 0, 3, 0, 5, 6}));

  Kinks one{.near = 1e-6, .most = 1};
  backward(one, input);
  ASSERT_EQ(one.found.size(), 1U);
  EXPECT_EQ(one.found[0].element, 0);
}

TEST(Kinks, OfAGatedReluAreThoseOfTheGate) {
  Numbers d_out{1, 2}, gate{1e-9, -1}, up{3, 4}, d_gate(2), d_up(2);
  Kinks kinks{.near = 1e-6};
  const auto run = [&](Kinks& with) {
    make_kink_device(with)->kernels().activation_backward(ActivationType::kRelu, view(d_out), view(gate), view(up),
                                                          view(d_gate), view(d_up));
  };
  run(kinks);
  EXPECT_EQ(d_gate, (Numbers{3, 0}));
  ASSERT_EQ(kinks.found.size(), 1U);
  Kinks flipped{.flip = true, .found = kinks.found};
  run(flipped);
  EXPECT_EQ(d_gate, (Numbers{0, 0}));
}

}  // namespace
}  // namespace trireme::kernels
