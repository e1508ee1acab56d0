#include "planner/fit.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "planner/evaluator.h"
#include "planner/test_problems.h"

namespace trireme::planner {
namespace {

Problem one_device() {
  cluster::Cluster cluster = preset("a100-80");
  return make_problem(gpt(6, 384, 6), cluster::with_devices(cluster, cluster.devices_per_host).or_throw(), 16, 256,
                      DType::kF32, default_calibration(), "trireme")
      .or_throw();
}

// Steps of known constants give these back, and the step that was measured.
TEST(FitDevice, FindsTheConstantsOfAStep) {
  Problem problem = one_device();
  problem.device = {.gemm_efficiency = 0.9,
                    .gemm_half_extent = 0,
                    .attention_efficiency = 0.5,
                    .memory_efficiency = 0.25,
                    .kernel_launch = {},
                    .inside_efficiency = 1,
                    .between_efficiency = 1};
  const Choice layout{.micro_batch = 4};
  const Estimate step = Evaluator(problem).estimate(layout);
  const DeviceConstants fitted = fit_device(
      one_device(), layout, {step.parts.gemm, step.parts.attention, step.parts.memory + step.parts.optimizer});
  EXPECT_NEAR(fitted.gemm_efficiency, 0.9, 1e-9);
  EXPECT_NEAR(fitted.attention_efficiency, 0.5, 1e-9);
  EXPECT_NEAR(fitted.memory_efficiency, 0.25, 1e-9);
  problem.device = fitted;
  EXPECT_NEAR(Evaluator(problem).estimate(layout).step_s, step.step_s, 1e-9 * step.step_s);
}

TEST(FitDevice, StaysWithinWhatACalibrationMayHold) {
  const DeviceConstants fast = fit_device(one_device(), {.micro_batch = 4}, {1e-9, 1e-9, 1e-9});
  EXPECT_EQ(fast.gemm_efficiency, 1);
  EXPECT_EQ(fast.memory_efficiency, 1);
  const DeviceConstants slow = fit_device(one_device(), {.micro_batch = 4}, {1e9, 1e9, 1e9});
  EXPECT_EQ(slow.attention_efficiency, 0.01);
}

TEST(FitDevice, IsReadBackFromItsFile) {
  DeviceConstants constants = fit_device(one_device(), {.micro_batch = 4}, {0.1, 0.2, 0.3});
  constants.kernel_launch = Seconds{3e-6};
  const std::string text = to_toml("1 core of \"this\"", constants);
  const Calibration read =
      parse_calibration(parse_toml(text, "fit").or_throw(), "fit", default_calibration()).or_throw();
  const DeviceConstants& back = read.device("1 core of \"this\"");
  EXPECT_EQ(back.gemm_efficiency, constants.gemm_efficiency);
  EXPECT_EQ(back.gemm_half_extent, 0);
  EXPECT_EQ(back.attention_efficiency, constants.attention_efficiency);
  EXPECT_EQ(back.memory_efficiency, constants.memory_efficiency);
  EXPECT_DOUBLE_EQ(back.kernel_launch.count, 3e-6);
  EXPECT_EQ(back.inside_efficiency, 1);
}

}  // namespace
}  // namespace trireme::planner
