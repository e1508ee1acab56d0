#include "engine/kernels/kinks.h"

#include <algorithm>
#include <cmath>

#include "engine/kernels/host_device.h"
#include "engine/kernels/reference/reference_kernels.h"

namespace trireme::kernels {
namespace {

std::vector<double> elements_of(ConstTensorView view) {
  TRIREME_CHECK(view.dtype == DType::kF64, "kinks of {}", dtype_name(view.dtype));
  std::vector<double> all;
  all.reserve(static_cast<std::size_t>(view.elements()));
  const auto* data = reinterpret_cast<const double*>(view.data);
  for (std::int64_t row = 0; row < view.rows; ++row) {
    all.insert(all.end(), data + row * view.row_stride, data + row * view.row_stride + view.columns);
  }
  return all;
}

class KinkKernels : public ReferenceKernels {
 public:
  explicit KinkKernels(Kinks& kinks) : kinks_(kinks) {}

  void activation_backward(ActivationType type, ConstTensorView d_out, ConstTensorView gate, ConstTensorView up,
                           TensorView d_gate, TensorView d_up) override {
    if (type != ActivationType::kRelu) {
      return ReferenceKernels::activation_backward(type, d_out, gate, up, d_gate, d_up);
    }
    const bool gated = !gate.empty();
    const ConstTensorView input = gated ? gate : up;
    std::vector<double> values = elements_of(input);
    kinks_.flip ? flip(values) : find(values);
    ++kinks_.calls;
    const ConstTensorView turned =
        make_view(reinterpret_cast<const std::byte*>(values.data()), DType::kF64, input.rows, input.columns);
    ReferenceKernels::activation_backward(type, d_out, gated ? turned : gate, gated ? up : turned, d_gate, d_up);
  }

 private:
  void find(const std::vector<double>& values) {
    double squares = 0;
    for (double value : values) squares += value * value;
    const double scale = std::sqrt(squares / static_cast<double>(std::max<std::size_t>(1, values.size())));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double distance = std::abs(values[i]) / scale;
      if (values[i] == 0.0 || !(distance <= kinks_.near)) continue;
      kinks_.found.push_back({kinks_.calls, static_cast<std::int64_t>(i), distance});
    }
    std::ranges::stable_sort(kinks_.found, {}, &Kink::distance);
    if (kinks_.found.size() > kinks_.most) kinks_.found.resize(kinks_.most);
  }

  void flip(std::vector<double>& values) const {
    for (const Kink& kink : kinks_.found) {
      if (kink.call == kinks_.calls) values[static_cast<std::size_t>(kink.element)] *= -1.0;
    }
  }

  Kinks& kinks_;
};

}  // namespace

std::unique_ptr<Device> make_kink_device(Kinks& kinks) {
  return std::make_unique<HostDevice>("reference, with kinks", std::make_unique<KinkKernels>(kinks));
}

}  // namespace trireme::kernels
