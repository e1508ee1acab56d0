#pragma once

// Rates that this machine reaches, measured: that of GEMM, which MFU is a share of, and of memory.

#include "base/env.h"
#include "engine/kernels/device.h"

namespace trireme::train {

// Best of a few square float32 products (size^3), in flops a second, over about `budget` of time.
double measure_gemm_rate(Env& env, kernels::Device& device, std::int64_t size = 1024, Seconds budget = {0.25});

// Best of a few copies of 128 MiB, in bytes a second that are read and written, over about `budget` of time.
double measure_copy_rate(Env& env, kernels::Device& device, Seconds budget = {0.25});

}  // namespace trireme::train
