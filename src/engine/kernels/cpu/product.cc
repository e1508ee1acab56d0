#include "engine/kernels/cpu/product.h"

#include <algorithm>
#include <cstring>

#include <dnnl.h>
#include <omp.h>

#include "base/check.h"
#include "engine/kernels/cpu/shares.h"
#include "engine/kernels/cpu/simd.h"
#include "engine/kernels/kernels.h"

namespace trireme::kernels::cpu {
namespace {

// oneDNN takes its threads from OpenMP's setting of the calling thread; here it is to take none beside it.
class LibraryAlone {
 public:
  LibraryAlone() : before_(omp_get_max_threads()) {
    if (before_ != 1) omp_set_num_threads(1);
  }
  ~LibraryAlone() {
    if (before_ != 1) omp_set_num_threads(before_);
  }
  LibraryAlone(const LibraryAlone&) = delete;
  LibraryAlone& operator=(const LibraryAlone&) = delete;

 private:
  int before_;
};

// The library's products are chains of fused multiply-adds (kernels.h) only with AVX-512, and not for few rows or one
// column: there it takes dot products or matrix times vector, whose sums have another order. Found for oneDNN 2.6 by
// gemm_bits_test.cc.
bool library_keeps_the_bits(const Product& p) {
  constexpr std::int64_t kLeastRows = 16;
  constexpr std::int64_t kLeastColumns = 2;
  static const bool has_avx512 = (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core;
  return has_avx512 && p.m >= kLeastRows && p.n >= kLeastColumns;
}

void library_block(const Product& p, const float* a, const float* b, std::int64_t k, bool add) {
  const dnnl_status_t status = dnnl_sgemm(p.transpose_a ? 'T' : 'N', p.transpose_b ? 'T' : 'N', p.m, p.n, k, 1.0f, a,
                                          p.a_stride, b, p.b_stride, add ? 1.0f : 0.0f, p.c, p.c_stride);
  TRIREME_CHECK(status == dnnl_success, "dnnl_sgemm of {} x {} x {}: status {}", p.m, p.n, k, static_cast<int>(status));
}

void own_block(const Product& p, const float* a, const float* b, std::int64_t k, bool add) {
  simd::BlockProduct work{.a = a,
                          .a_row = p.transpose_a ? 1 : p.a_stride,
                          .a_column = p.transpose_a ? p.a_stride : 1,
                          .b_row = p.transpose_b ? 1 : p.b_stride,
                          .b_column = p.transpose_b ? p.b_stride : 1,
                          .c_stride = p.c_stride,
                          .rows = p.m,
                          .inner = k,
                          .add = add};
  for (std::int64_t column = 0; column < p.n; column += simd::kPanelColumns) {
    work.b = b + column * work.b_column;
    work.c = p.c + column;
    work.columns = std::min(simd::kPanelColumns, p.n - column);
    simd::block_product(work);
  }
}

void multiply_share(const Product& p) {
  const LibraryAlone alone;
  const bool by_library = library_keeps_the_bits(p);
  for (std::int64_t begin = 0; begin < p.k; begin += kGemmKBlock) {
    const std::int64_t block = std::min(kGemmKBlock, p.k - begin);
    const float* a = p.a + (p.transpose_a ? begin * p.a_stride : begin);
    const float* b = p.b + (p.transpose_b ? begin : begin * p.b_stride);
    const bool add = p.accumulate || begin > 0;
    if (by_library) {
      library_block(p, a, b, block, add);
    } else {
      own_block(p, a, b, block, add);
    }
  }
}

}  // namespace

void multiply(const Product& p, Team& team) {
  if (p.m == 0 || p.n == 0) return;
  if (p.k == 0) {
    if (p.accumulate) return;
    for (std::int64_t i = 0; i < p.m; ++i) {
      std::memset(p.c + i * p.c_stride, 0, static_cast<std::size_t>(p.n) * sizeof(float));
    }
    return;
  }
  constexpr ShareUnit kUnit{.rows = 16, .columns = 48};
  for_shares({p.m, p.n, p.transpose_a}, kUnit, team, [&](const Share& share, std::int64_t) {
    Product part = p;
    part.m = share.rows;
    part.n = share.columns;
    part.a += p.transpose_a ? share.row : share.row * p.a_stride;
    part.b += p.transpose_b ? share.column * p.b_stride : share.column;
    part.c += share.row * p.c_stride + share.column;
    multiply_share(part);
  });
}

}  // namespace trireme::kernels::cpu
