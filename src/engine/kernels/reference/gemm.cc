#include <algorithm>
#include <cmath>

#include "engine/kernels/reference/access.h"
#include "engine/kernels/reference/reference_kernels.h"

namespace trireme::kernels {
namespace {

using reference::Matrix;

template <class T>
T element_of(Matrix<const T> matrix, bool transpose, std::int64_t row, std::int64_t column) {
  return transpose ? matrix(column, row) : matrix(row, column);
}

// The definition of a product (kernels.h). The chain of a block goes on from the sum of the blocks before it,
// the first from c or zero.
template <class T>
void gemm_of(const Gemm& work) {
  const std::int64_t rows = work.c.rows;
  const std::int64_t columns = work.c.columns;
  const std::int64_t inner = work.transpose_a ? work.a.rows : work.a.columns;
  const auto a = reference::readable<T>(work.a, work.transpose_a ? inner : rows, work.transpose_a ? rows : inner, "a");
  const auto b =
      reference::readable<T>(work.b, work.transpose_b ? columns : inner, work.transpose_b ? inner : columns, "b");
  const auto c = reference::writable<T>(work.c, rows, columns, "c");
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) {
      T sum = work.accumulate ? c(i, j) : T{0};
      for (std::int64_t k = 0; k < inner; ++k) {
        sum = std::fma(element_of(a, work.transpose_a, i, k), element_of(b, work.transpose_b, k, j), sum);
      }
      c(i, j) = sum;
    }
  }
}

}  // namespace

void ReferenceKernels::gemm(const Gemm& gemm) {
  reference::with_type(gemm.c.dtype, [&](auto zero) { gemm_of<decltype(zero)>(gemm); });
}

}  // namespace trireme::kernels
