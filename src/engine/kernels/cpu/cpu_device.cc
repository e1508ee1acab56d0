#include <dnnl.h>
#include <fmt/format.h>

#include "engine/kernels/cpu/cpu_kernels.h"
#include "engine/kernels/cpu/simd.h"
#include "engine/kernels/device.h"
#include "engine/kernels/host_device.h"

namespace trireme::kernels {
namespace {

class CpuDevice : public HostDevice {
 public:
  explicit CpuDevice(int threads) : HostDevice("cpu", std::make_unique<CpuKernels>(threads)) {}

  void copy_rows_to_host(float* destination, const float* source, std::int64_t row, std::int64_t rows,
                         std::int64_t stride) override {
    simd::copy_rows_past_cache(destination, source, row, rows, stride);
  }
};

}  // namespace

std::unique_ptr<Device> make_cpu_device(int threads) {
  TRIREME_CHECK_GE(threads, 1);
  return std::make_unique<CpuDevice>(threads);
}

std::string cpu_fingerprint() {
  const dnnl_version_t* version = dnnl_version();
  return fmt::format("oneDNN {}.{}.{}, {}", version->major, version->minor, version->patch, simd::instruction_set());
}

}  // namespace trireme::kernels
