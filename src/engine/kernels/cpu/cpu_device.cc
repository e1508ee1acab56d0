#include <cstring>

#include "engine/kernels/cpu/cpu_kernels.h"
#include "engine/kernels/device.h"
#include "engine/kernels/host_device.h"

namespace trireme::kernels {

std::unique_ptr<Device> make_cpu_device(int threads) {
  TRIREME_CHECK_GE(threads, 1);
  return std::make_unique<HostDevice>("cpu", std::make_unique<CpuKernels>(threads));
}

}  // namespace trireme::kernels
