#include "base/narrow_scratch.h"
#include "engine/kernels/cpu/cpu_kernels.h"
#include "engine/kernels/cpu/product.h"

namespace trireme::kernels {
namespace {

using cpu::InRows;
using cpu::OutRows;

template <class Rows>
auto floats(const Rows& rows) {
  using Float = std::conditional_t<std::is_same_v<Rows, InRows>, const float, float>;
  return reinterpret_cast<Float*>(rows.address(0));
}

}  // namespace

void CpuKernels::use_scratch(TensorView scratch) {
  TRIREME_CHECK(scratch.dtype == DType::kF32 && scratch.contiguous());
  TRIREME_CHECK_GE(scratch.elements(), narrow_scratch_elements(threads()));
  scratch_ = reinterpret_cast<float*>(scratch.data);
}

void CpuKernels::gemm(const Gemm& work) {
  const std::int64_t m = work.c.rows;
  const std::int64_t n = work.c.columns;
  const std::int64_t k = work.transpose_a ? work.a.rows : work.a.columns;
  const InRows a = cpu::in_rows(work.a, work.transpose_a ? k : m, work.transpose_a ? m : k, "a");
  const InRows b = cpu::in_rows(work.b, work.transpose_b ? n : k, work.transpose_b ? k : n, "b");
  const OutRows c = cpu::out_rows(work.c, m, n, "c");
  if (cpu::any_narrow(a, b, c)) {
    TRIREME_CHECK(scratch_ != nullptr, "a product of narrow operands without scratch");
    return cpu::multiply({.a = a,
                          .transpose_a = work.transpose_a,
                          .b = b,
                          .transpose_b = work.transpose_b,
                          .c = c,
                          .m = m,
                          .n = n,
                          .k = k,
                          .accumulate = work.accumulate},
                         scratch_, team_);
  }
  cpu::multiply({.a = floats(a),
                 .a_stride = a.stride(),
                 .transpose_a = work.transpose_a,
                 .b = floats(b),
                 .b_stride = b.stride(),
                 .transpose_b = work.transpose_b,
                 .c = floats(c),
                 .c_stride = c.stride(),
                 .m = m,
                 .n = n,
                 .k = k,
                 .accumulate = work.accumulate},
                team_);
}

}  // namespace trireme::kernels
