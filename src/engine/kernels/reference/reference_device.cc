#include "engine/kernels/device.h"
#include "engine/kernels/host_device.h"
#include "engine/kernels/reference/reference_kernels.h"

namespace trireme::kernels {

std::unique_ptr<Device> make_reference_device() {
  return std::make_unique<HostDevice>("reference", std::make_unique<ReferenceKernels>());
}

}  // namespace trireme::kernels
