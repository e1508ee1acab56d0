#include "engine/kernels/reference/widened.h"

#include <span>

namespace trireme::kernels::reference {
namespace {

template <class Pointer>
auto bytes_of_row(const BasicView<Pointer>& view, std::int64_t row) {
  const std::int64_t element = dtype_size(view.dtype);
  return std::span(view.data + row * view.row_stride * element, static_cast<std::size_t>(view.columns * element));
}

std::span<float> row_of(std::vector<float>& values, std::int64_t row, std::int64_t columns) {
  return std::span(values).subspan(static_cast<std::size_t>(row * columns), static_cast<std::size_t>(columns));
}

}  // namespace

Widened::~Widened() {
  for (Copy& copy : copies_) {
    if (copy.to.empty()) continue;
    for (std::int64_t row = 0; row < copy.to.rows; ++row) {
      convert_from_f32(copy.to.dtype, row_of(copy.values, row, copy.to.columns), bytes_of_row(copy.to, row));
    }
  }
}

TensorView Widened::copy_of(ConstTensorView view, TensorView to) {
  Copy& copy = copies_.emplace_back(Copy{std::vector<float>(static_cast<std::size_t>(view.elements())), to});
  for (std::int64_t row = 0; row < view.rows; ++row) {
    convert_to_f32(view.dtype, bytes_of_row(view, row), row_of(copy.values, row, view.columns));
  }
  return make_view(reinterpret_cast<std::byte*>(copy.values.data()), DType::kF32, view.rows, view.columns);
}

void Widened::replace(ConstTensorView& view) {
  if (is_narrow(view.dtype)) view = copy_of(view, TensorView{});
}

void Widened::replace_rounded(DType dtype, ConstTensorView& view) {
  if (view.dtype != DType::kF32) return;
  view = copy_of(view, TensorView{});
  std::vector<float>& values = copies_.back().values;
  std::vector<std::byte> narrow(values.size() * static_cast<std::size_t>(dtype_size(dtype)));
  convert_from_f32(dtype, values, narrow);
  convert_to_f32(dtype, narrow, values);
}

void Widened::replace_result(TensorView& view) {
  if (is_narrow(view.dtype)) view = copy_of(view, view);
}

}  // namespace trireme::kernels::reference
