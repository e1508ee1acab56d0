#include "engine/kernels/cpu/product.h"

#include <algorithm>
#include <cstring>

#include <dnnl.h>
#include <omp.h>

#include "base/check.h"
#include "engine/kernels/kernels.h"

namespace trireme::kernels::cpu {
namespace {

// oneDNN takes its threads from OpenMP's setting of the calling thread.
class ThreadCount {
 public:
  explicit ThreadCount(int threads) : before_(omp_get_max_threads()) {
    if (threads != before_) omp_set_num_threads(threads);
  }
  ~ThreadCount() {
    if (omp_get_max_threads() != before_) omp_set_num_threads(before_);
  }
  ThreadCount(const ThreadCount&) = delete;
  ThreadCount& operator=(const ThreadCount&) = delete;

 private:
  int before_;
};

}  // namespace

void multiply(const Product& p, int threads) {
  if (p.m == 0 || p.n == 0) return;
  if (p.k == 0) {
    if (p.accumulate) return;
    for (std::int64_t i = 0; i < p.m; ++i) {
      std::memset(p.c + i * p.c_stride, 0, static_cast<std::size_t>(p.n) * sizeof(float));
    }
    return;
  }
  const ThreadCount count(threads);
  for (std::int64_t begin = 0; begin < p.k; begin += kGemmKBlock) {
    const std::int64_t block = std::min(kGemmKBlock, p.k - begin);
    const float* a = p.a + (p.transpose_a ? begin * p.a_stride : begin);
    const float* b = p.b + (p.transpose_b ? begin : begin * p.b_stride);
    const float beta = p.accumulate || begin > 0 ? 1.0f : 0.0f;
    const dnnl_status_t status = dnnl_sgemm(p.transpose_a ? 'T' : 'N', p.transpose_b ? 'T' : 'N', p.m, p.n, block, 1.0f,
                                            a, p.a_stride, b, p.b_stride, beta, p.c, p.c_stride);
    TRIREME_CHECK(status == dnnl_success, "dnnl_sgemm of {} x {} x {}: status {}", p.m, p.n, block,
                  static_cast<int>(status));
  }
}

}  // namespace trireme::kernels::cpu
