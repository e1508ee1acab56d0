#include "engine/train/peak.h"

#include <algorithm>
#include <functional>
#include <vector>

namespace trireme::train {
namespace {

// Square tensors of a device, as long as they are needed.
class Squares {
 public:
  Squares(kernels::Device& device, int count, std::int64_t size)
      : device_(device), bytes_{size * size * dtype_size(DType::kF32)} {
    for (int i = 0; i < count; ++i) {
      views_.push_back(kernels::make_view(device.allocate(bytes_), DType::kF32, size, size));
      device.kernels().fill(views_.back(), 1.0 / static_cast<double>(size));
    }
  }
  ~Squares() {
    for (const kernels::TensorView& view : views_) device_.deallocate(view.data, bytes_);
  }
  Squares(const Squares&) = delete;
  Squares& operator=(const Squares&) = delete;
  const kernels::TensorView& operator[](std::size_t i) const { return views_[i]; }

 private:
  kernels::Device& device_;
  Bytes bytes_;
  std::vector<kernels::TensorView> views_;
};

// The shortest of a few rounds, but for the first, in seconds.
double shortest(Env& env, kernels::Device& device, Seconds budget, const std::function<void()>& work) {
  const double start = env.now().count;
  double best = 0.0;
  for (int round = 0; round < 64 && (round < 3 || env.now().count - start < budget.count); ++round) {
    const double before = env.now().count;
    work();
    device.synchronize();
    const double elapsed = env.now().count - before;
    if (round > 0 && elapsed > 0.0) best = best > 0.0 ? std::min(best, elapsed) : elapsed;
  }
  return best;
}

double rate(double amount, double seconds) { return seconds > 0.0 ? amount / seconds : 0.0; }

}  // namespace

double measure_gemm_rate(Env& env, kernels::Device& device, std::int64_t size, Seconds budget) {
  const Squares tensors(device, 3, size);
  const double flops = 2.0 * static_cast<double>(size) * static_cast<double>(size) * static_cast<double>(size);
  return rate(flops, shortest(env, device, budget,
                              [&] { device.kernels().gemm({.a = tensors[0], .b = tensors[1], .c = tensors[2]}); }));
}

double measure_copy_rate(Env& env, kernels::Device& device, Seconds budget) {
  constexpr std::int64_t kSize = 5793;  // squared, in floats: 128 MiB
  const Squares tensors(device, 2, kSize);
  const double bytes = 2.0 * static_cast<double>(kSize * kSize * dtype_size(DType::kF32));
  return rate(bytes, shortest(env, device, budget, [&] { device.kernels().copy(tensors[0], tensors[1]); }));
}

}  // namespace trireme::train
