#include "engine/nn/context.h"

namespace trireme::nn {

kernels::TensorView Workspace::at(Bytes offset, std::int64_t rows, std::int64_t columns, DType dtype) {
  const Bytes end = offset + allocation_size(Bytes{checked_multiply(rows, columns) * dtype_size(dtype)});
  TRIREME_CHECK(end <= size_, "workspace: up to {} bytes of {}", end.count, size_.count);
  high_water_ = std::max(high_water_, end);
  return kernels::make_view(data_ + offset.count, dtype, rows, columns);
}

}  // namespace trireme::nn
