#pragma once

// What one host does with ranks as threads of this process, all of them busy at once: what a layout of so many ranks
// has there.

#include <vector>

#include "base/env.h"
#include "base/log.h"

namespace trireme::train {

struct ProductRate {
  std::int64_t rows = 0, columns = 0, inner = 0;
  double flops_per_s = 0;  // of one rank
};

struct MachineRates {
  int ranks = 1, threads = 1;
  double fp32_flops_per_s = 0;        // of one rank: the fastest of 1024 x 1024 x 1024 and the products below
  double bf16_flops_per_s = 0;        // 1024 x 1024 x 1024
  double copy_bytes_per_s = 0;        // of one rank: what a copy reads and writes
  std::vector<ProductRate> products;  // fp32, shapes of layers
  double all_reduce_bytes_per_s = 0;  // 64 MiB over all ranks: bytes that a rank sends a second; 0: one rank
  Seconds all_reduce_latency;         // of one number
};

MachineRates measure_machine(Env& env, Log& log, int ranks, int threads);

}  // namespace trireme::train
