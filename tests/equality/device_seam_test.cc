// The device seam: the same run on the plain loops, on an asynchronous device whose memory the host cannot touch, and
// on the CPU backend.

#include <cmath>

#include <gtest/gtest.h>

#include "support/tiny_run.h"

namespace trireme::testing {
namespace {

TEST(DeviceSeam, AnAsynchronousDeviceGivesTheSameBits) {
  for (const model::Config& config : {tiny_gpt2(0.1), tiny_llama(false)}) {
    TinyRun run{.config = config, .device = DeviceKind::kReference};
    const Curve reference = train_curve(run, 3);
    run.device = DeviceKind::kFake;
    EXPECT_EQ(train_curve(run, 3), reference);
  }
}

TEST(DeviceSeam, TheCpuBackendFollowsTheReferenceInFloat64) {
  for (const model::Config& config : {tiny_gpt2(0.1), tiny_llama(false), tiny_llama(true)}) {
    TinyRank fast({.config = config});
    TinyRank exact({.config = config, .device = DeviceKind::kReference, .compute = DType::kF64});
    for (int step = 0; step < 3; ++step) {
      const parallel::StepResult a = fast.step(), b = exact.step();
      EXPECT_NEAR(a.loss, b.loss, 1e-5 * b.loss);
      EXPECT_NEAR(a.grad_norm, b.grad_norm, 1e-4 * b.grad_norm);
    }
  }
}

TEST(DeviceSeam, AGradientThatIsNotFiniteEndsTheRunWithItsOwnCode) {
  TinyRun run{.config = tiny_llama(false), .learning_rate = 1e30, .clip_norm = 0.0, .weight_decay = 0.0};
  TinyRank rank(run);
  try {
    for (int i = 0; i < 10; ++i) rank.step();
    FAIL() << "a learning rate of 1e30 must diverge";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kDiverged);
    EXPECT_NE(std::string(error.what()).find("step"), std::string::npos);
  }
}

}  // namespace
}  // namespace trireme::testing
