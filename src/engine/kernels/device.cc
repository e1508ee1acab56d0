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
  std::vector<std::byte> raw(static_cast<std::size_t>(bytes.count));
  device.copy_to_host(raw.data(), view.data, bytes);
  std::vector<float> values(count);
  convert_to_f32(view.dtype, raw, values);
  return {values.begin(), values.end()};
}

void Device::copy_rows_to_host(float* destination, const float* source, std::int64_t row, std::int64_t rows,
                               std::int64_t stride) {
  for (std::int64_t i = 0; i < rows; ++i) {
    copy_to_host(destination + i * row, reinterpret_cast<const std::byte*>(source + i * stride),
                 Bytes{row * dtype_size(DType::kF32)});
  }
}

}  // namespace trireme::kernels
