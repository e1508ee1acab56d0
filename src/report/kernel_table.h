#pragma once

// Kernels of a step beside what limits them: flops or bytes, whichever takes longer at the rates of the machine.

#include <string>
#include <vector>

#include "base/json.h"
#include "telemetry/kernel_times.h"

namespace trireme::report {

struct KernelLimits {
  double flops_per_s = 0;
  double bytes_per_s = 0;
};
struct KernelRow {
  telemetry::KernelTimes times;
  bool by_flops = false;  // what limits it
  double limit_s = 0;     // at that rate
};

// Products of one kind, whatever their shape, are one row where `by_shape` is false.
std::vector<KernelRow> kernel_rows(std::vector<telemetry::KernelTimes> kernels, const KernelLimits& limits,
                                   bool by_shape);
// Beneath them what is left of step_s: waiting for other ranks, and what is in no kernel.
std::string kernel_table(const std::vector<KernelRow>& rows, double step_s, double waited_s);
Json kernel_json(const std::vector<KernelRow>& rows);

}  // namespace trireme::report
