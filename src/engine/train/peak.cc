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

double measure_cache_rate(Env& env, kernels::Device& device, Seconds budget) {
  constexpr std::int64_t kExtents[] = {90, 256, 724};  // squared, in floats: 32 KiB, 256 KiB, 2 MiB
  constexpr double kRound = 1 << 23;                   // bytes of a round, so that the clock does not matter
  double best = 0;
  for (const std::int64_t extent : kExtents) {
    const Tensor from(device, DType::kF32, extent, extent), to(device, DType::kF32, extent, extent);
    const double bytes = 2.0 * static_cast<double>(extent * extent * dtype_size(DType::kF32));
    const int times = std::max(1, static_cast<int>(kRound / bytes));
    const double seconds = shortest(env, device, {budget.count / std::size(kExtents)}, [&] {
      for (int i = 0; i < times; ++i) device.kernels().copy(from.view(), to.view());
    });
    best = std::max(best, rate(times * bytes, seconds));
  }
  return best;
}

PeakRate::PeakRate(double flops_per_s, Seconds now) : best_(flops_per_s), last_(now.count) {}

std::optional<double> PeakRate::share(double flops, double seconds) {
  fastest_step_ = std::max(fastest_step_, flops / seconds);
  return known() && best_ > 0 ? std::optional(flops / seconds / best_) : std::nullopt;
}

Seconds PeakRate::pause() const {
  constexpr double kShortest = 1, kTimesItsCost = 20;
  return {std::max(known() ? spread_ : kShortest, kTimesItsCost * cost_)};
}

bool PeakRate::due(Seconds now) const { return now.count - last_ >= pause().count; }

void PeakRate::measured(double flops_per_s, Seconds begun, Seconds ended) {
  best_ = std::max(best_, flops_per_s);
  cost_ = ended.count - begun.count;
  last_ = ended.count;
  spread_ *= 2;
}

}  // namespace trireme::train
