#include "engine/train/peak.h"

#include <algorithm>
#include <functional>
#include <optional>

#include "base/narrow_scratch.h"

namespace trireme::train {
namespace {

// A tensor of a device, as long as it is needed.
class Tensor {
 public:
  Tensor(kernels::Device& device, DType dtype, std::int64_t rows, std::int64_t columns)
      : device_(device), bytes_{rows * columns * dtype_size(dtype)} {
    view_ = kernels::make_view(device.allocate(bytes_), dtype, rows, columns);
    device.kernels().fill(view_, 1.0 / static_cast<double>(columns));
  }
  ~Tensor() { device_.deallocate(view_.data, bytes_); }
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;
  const kernels::TensorView& view() const { return view_; }

 private:
  kernels::Device& device_;
  Bytes bytes_;
  kernels::TensorView view_;
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

double measure_gemm_rate(Env& env, kernels::Device& device, DType dtype, const ProductSize& size, Seconds budget) {
  const Tensor a(device, dtype, size.rows, size.inner), b(device, dtype, size.inner, size.columns),
      c(device, dtype, size.rows, size.columns);
  std::optional<Tensor> scratch;
  if (is_narrow(dtype)) {
    scratch.emplace(device, DType::kF32, 1, narrow_scratch_elements(device.kernels().threads()));
    device.kernels().use_scratch(scratch->view());
  }
  const double flops = 2.0 * static_cast<double>(size.rows * size.columns) * static_cast<double>(size.inner);
  return rate(flops, shortest(env, device, budget,
                              [&] { device.kernels().gemm({.a = a.view(), .b = b.view(), .c = c.view()}); }));
}

double measure_copy_rate(Env& env, kernels::Device& device, Seconds budget) {
  constexpr std::int64_t kSize = 5793;  // squared, in floats: 128 MiB
  const Tensor from(device, DType::kF32, kSize, kSize), to(device, DType::kF32, kSize, kSize);
  const double bytes = 2.0 * static_cast<double>(kSize * kSize * dtype_size(DType::kF32));
  return rate(bytes, shortest(env, device, budget, [&] { device.kernels().copy(from.view(), to.view()); }));
}

}  // namespace trireme::train
