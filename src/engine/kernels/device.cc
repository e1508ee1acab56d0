#include "engine/kernels/device.h"

#include "base/check.h"

namespace trireme::kernels {

std::vector<double> to_host(Device& device, ConstTensorView view) {
  TRIREME_CHECK(view.contiguous());
  const auto count = static_cast<std::size_t>(view.elements());
  const Bytes bytes{view.elements() * dtype_size(view.dtype)};
  if (view.dtype == DType::kF64) {
    std::vector<double> wide(count);
    device.copy_to_host(wide.data(), view.data, bytes);
    return wide;
  }
  TRIREME_CHECK(view.dtype == DType::kF32);
  std::vector<float> narrow(count);
  device.copy_to_host(narrow.data(), view.data, bytes);
  return {narrow.begin(), narrow.end()};
}

}  // namespace trireme::kernels
