#pragma once

// Rates that this machine reaches, measured: that of GEMM, which MFU is a share of, and of memory.

#include <optional>

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

// The same of copies that the caches of a core hold: the best of a few sizes.
double measure_cache_rate(Env& env, kernels::Device& device, Seconds budget = {0.25});

// The rate of products that MFU is a share of, of all ranks: the best of short measurements spread over the run, since
// a machine that is taken meanwhile shows less. Where a step was faster than any of them, it is not known.
class PeakRate {
 public:
  // As the start measured it, until `now`.
  PeakRate(double flops_per_s, Seconds now);
  // Of a step; nothing while the rate is not known.
  std::optional<double> share(double flops, double seconds);
  // Time for another measurement: rarely, so that all of them take little of the run, and sooner where it is not known.
  bool due(Seconds now) const;
  void measured(double flops_per_s, Seconds begun, Seconds ended);
  double flops_per_s() const { return best_; }
  bool known() const { return fastest_step_ <= best_; }

 private:
  Seconds pause() const;

  double best_;
  double fastest_step_ = 0;
  double last_;        // when the newest measurement ended
  double cost_ = 0;    // how long it took
  double spread_ = 1;  // pause after it, in seconds, while the rate is known
};

}  // namespace trireme::train
