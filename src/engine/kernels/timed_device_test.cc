#include "engine/kernels/timed_device.h"

#include <gtest/gtest.h>

#include "base/attention_tile.h"
#include "base/fake_env.h"
#include "engine/kernels/reference/test_tensor.h"

namespace trireme::kernels {
namespace {

TEST(TimedDevice, DoesTheWorkAndCountsIt) {
  FakeEnv env;
  KernelRecord record;
  const std::unique_ptr<Device> device = make_timed_device(make_reference_device(), env, record);
  TestTensor<float> a(2, 3), b(3, 4), c(2, 4), bias(1, 4);
  device->kernels().fill(a.view(), 1);
  device->kernels().fill(b.view(), 2);
  device->kernels().fill(bias.view(), 1);
  record.take();
  for (int i = 0; i < 2; ++i) {
    device->kernels().gemm({.a = a.view(), .b = b.view(), .c = c.view()});
    device->kernels().add_bias(c.view(), bias.view());
  }
  EXPECT_EQ(to_host(*device, c.view()), std::vector<double>(8, 7));
  const std::vector<telemetry::KernelTimes> times = record.take();
  ASSERT_EQ(times.size(), 2U);
  const auto& product = times[0].flops > 0 ? times[0] : times[1];
  const auto& other = times[0].flops > 0 ? times[1] : times[0];
  EXPECT_EQ(product.kernel, "gemm NN 2 x 4 x 3");
  EXPECT_EQ(product.calls, 2);
  EXPECT_EQ(product.flops, 2.0 * 2 * 2 * 4 * 3);
  EXPECT_EQ(product.bytes, 2.0 * 4 * (6 + 12 + 8));
  EXPECT_EQ(other.kernel, "add_bias");
  EXPECT_EQ(other.bytes, 2.0 * 4 * (8 + 4));
  EXPECT_TRUE(record.take().empty());
}

// Queries of six positions see 1 + 2 + 3 + 3 + 3 + 3 keys in a window of three, 21 without: two products of twice as
// many flops a column.
TEST(TimedDevice, CountsWhatQueriesSee) {
  FakeEnv env;
  KernelRecord record;
  const std::unique_ptr<Device> device = make_timed_device(make_reference_device(), env, record);
  TestTensor<float> x(6, 4), out(6, 4), log_sum_exp(2, 6), scratch(1, attention_forward_scratch(6, 2));
  AttentionForward work{
      .shape = {.sequences = 1, .sequence = 6, .heads = 2, .kv_heads = 2, .head_dim = 2, .dropout = {}},
      .q = x.view(),
      .k = x.view(),
      .v = x.view(),
      .out = out.view(),
      .log_sum_exp = log_sum_exp.view(),
      .scratch = scratch.view()};
  for (const auto& [window, keys] : {std::pair{0, 21.0}, {3, 15.0}, {1, 6.0}, {6, 21.0}, {99, 21.0}}) {
    work.shape.window = window;
    device->kernels().attention_forward(work);
    const std::vector<telemetry::KernelTimes> times = record.take();
    ASSERT_EQ(times.size(), 1U);
    EXPECT_EQ(times[0].flops, 2 * 2 * keys * 2 * 2) << window;
  }
}

}  // namespace
}  // namespace trireme::kernels
