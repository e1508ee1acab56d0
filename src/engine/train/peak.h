#pragma once

// The rate that this machine's GEMM reaches, measured: what MFU is a share of.

#include "base/env.h"
#include "engine/kernels/device.h"

namespace trireme::train {

// Best of a few square float32 products (size^3), in flops a second, over about `budget` of time.
double measure_gemm_rate(Env& env, kernels::Device& device, std::int64_t size = 1024, Seconds budget = {0.25});

}  // namespace trireme::train
