#include "engine/train/peak.h"

#include <algorithm>

namespace trireme::train {

double measure_gemm_rate(Env& env, kernels::Device& device, std::int64_t size, Seconds budget) {
  const Bytes bytes{size * size * dtype_size(DType::kF32)};
  std::byte* memory[3];
  kernels::TensorView views[3];
  for (int i = 0; i < 3; ++i) {
    memory[i] = device.allocate(bytes);
    views[i] = kernels::make_view(memory[i], DType::kF32, size, size);
    device.kernels().fill(views[i], 1.0 / static_cast<double>(size));
  }
  const double flops = 2.0 * static_cast<double>(size) * static_cast<double>(size) * static_cast<double>(size);
  const double start = env.now().count;
  double best = 0.0;
  for (int round = 0; round < 64 && (round < 3 || env.now().count - start < budget.count); ++round) {
    const double before = env.now().count;
    device.kernels().gemm({.a = views[0], .b = views[1], .c = views[2]});
    device.synchronize();
    const double elapsed = env.now().count - before;
    if (round > 0 && elapsed > 0.0) best = std::max(best, flops / elapsed);
  }
  for (std::byte* buffer : memory) device.deallocate(buffer, bytes);
  return best;
}

}  // namespace trireme::train
