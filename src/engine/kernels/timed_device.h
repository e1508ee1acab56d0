#pragma once

// A device that keeps time of each kernel, for profiles. Around one whose work is done when a call returns.

#include <map>
#include <memory>
#include <vector>

#include "base/env.h"
#include "engine/kernels/device.h"
#include "telemetry/kernel_times.h"

namespace trireme::kernels {

// Of one rank's thread.
class KernelRecord {
 public:
  void add(const std::string& kernel, double seconds, double flops, double bytes);
  // Since the last time, those that took longest first.
  std::vector<telemetry::KernelTimes> take();

 private:
  std::map<std::string, telemetry::KernelTimes> times_;
};

// The clock and the record outlive it.
std::unique_ptr<Device> make_timed_device(std::unique_ptr<Device> device, Env& env, KernelRecord& record);

}  // namespace trireme::kernels
