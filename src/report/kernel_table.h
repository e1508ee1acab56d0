#pragma once

// Kernels of a step beside what limits them: flops or bytes, whichever takes longer at the rates of the machine. A
// kernel that is faster than memory found its data in a cache, which is its limit then. What a kernel has reached is no
// less than its limit: no share is above 1.

#include <string>
#include <vector>

#include "base/json.h"
#include "telemetry/kernel_times.h"

namespace trireme::report {

struct KernelLimits {
  double flops_per_s = 0;
  double bytes_per_s = 0;        // of memory
  double cache_bytes_per_s = 0;  // of data that a cache holds
};
// Measured limits, raised to what any of the kernels has reached.
KernelLimits reached(KernelLimits measured, const std::vector<telemetry::KernelTimes>& kernels);

enum class KernelLimit { kFlops, kBytes, kCache };
struct KernelRow {
  telemetry::KernelTimes times;
  KernelLimit limit = KernelLimit::kFlops;  // what limits it; of several shapes, those that take longest
  double limit_s = 0;                       // at that rate, never more than it took
};

// Products of one kind, whatever their shape, are one row where `by_shape` is false.
std::vector<KernelRow> kernel_rows(std::vector<telemetry::KernelTimes> kernels, const KernelLimits& limits,
                                   bool by_shape);
// Beneath them what is left of step_s: waiting for other ranks, and what is in no kernel.
std::string kernel_table(const std::vector<KernelRow>& rows, double step_s, double waited_s);
Json kernel_json(const std::vector<KernelRow>& rows);

}  // namespace trireme::report
