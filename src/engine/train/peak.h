#pragma once

// Rates that this machine reaches, measured: that of GEMM, which MFU is a share of, and of memory.

#include "base/env.h"
#include "engine/kernels/device.h"

namespace trireme::train {

struct ProductSize {
  std::int64_t rows = 1024, columns = 1024, inner = 1024;
};
// Best of a few products of F32 or of a narrow type, in flops a second, over about `budget` of time.
double measure_gemm_rate(Env& env, kernels::Device& device, DType dtype = DType::kF32, const ProductSize& size = {},
                         Seconds budget = {0.25});

// Best of a few copies of 128 MiB, in bytes a second that are read and written, over about `budget` of time.
double measure_copy_rate(Env& env, kernels::Device& device, Seconds budget = {0.25});

}  // namespace trireme::train
