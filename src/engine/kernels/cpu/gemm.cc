#include "engine/kernels/cpu/cpu_kernels.h"
#include "engine/kernels/cpu/product.h"
#include "engine/kernels/cpu/rows.h"

namespace trireme::kernels {

void CpuKernels::gemm(const Gemm& work) {
  const std::int64_t m = work.c.rows;
  const std::int64_t n = work.c.columns;
  const std::int64_t k = work.transpose_a ? work.a.rows : work.a.columns;
  const auto a = cpu::readable(work.a, work.transpose_a ? k : m, work.transpose_a ? m : k, "a");
  const auto b = cpu::readable(work.b, work.transpose_b ? n : k, work.transpose_b ? k : n, "b");
  const auto c = cpu::writable(work.c, m, n, "c");
  cpu::multiply({.a = a.data,
                 .a_stride = a.stride,
                 .transpose_a = work.transpose_a,
                 .b = b.data,
                 .b_stride = b.stride,
                 .transpose_b = work.transpose_b,
                 .c = c.data,
                 .c_stride = c.stride,
                 .m = m,
                 .n = n,
                 .k = k,
                 .accumulate = work.accumulate},
                threads_);
}

}  // namespace trireme::kernels
