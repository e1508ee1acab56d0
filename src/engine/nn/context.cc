#include "engine/nn/context.h"

namespace trireme::nn {

kernels::TensorView Workspace::take(std::int64_t rows, std::int64_t columns, DType dtype) {
  const Bytes bytes = allocation_size(Bytes{checked_multiply(rows, columns) * dtype_size(dtype)});
  TRIREME_CHECK(used_ + bytes <= size_, "workspace: {} + {} bytes of {}", used_.count, bytes.count, size_.count);
  std::byte* start = data_ + used_.count;
  used_ += bytes;
  high_water_ = std::max(high_water_, used_);
  return kernels::make_view(start, dtype, rows, columns);
}

void sum_over_tensor_ranks(const UnitContext& context, kernels::TensorView view) {
  comm::Communicator& group = context.rank.tensor;
  if (group.size() == 1) return;
  TRIREME_CHECK(view.contiguous());
  group.all_reduce(context.rank.device.stream(), view.data, view.elements(), view.dtype, comm::Reduction::kSum)->wait();
}

}  // namespace trireme::nn
