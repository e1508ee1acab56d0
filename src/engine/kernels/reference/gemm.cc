#include <algorithm>
#include <cmath>

#include "engine/kernels/reference/access.h"
#include "engine/kernels/reference/reference_kernels.h"
#include "engine/kernels/reference/widened.h"

namespace trireme::kernels {
namespace {

using reference::Matrix;

template <class T>
T element_of(Matrix<const T> matrix, bool transpose, std::int64_t row, std::int64_t column) {
  return transpose ? matrix(column, row) : matrix(row, column);
}

// The definition of a product (kernels.h): each block of the contraction is a chain of fused multiply-adds from zero,
// and the blocks are added to c one after the other; without accumulate the first is stored.
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
      if (inner == 0 && !work.accumulate) c(i, j) = 0;
      for (std::int64_t begin = 0; begin < inner; begin += kGemmKBlock) {
        T chain = 0;
        for (std::int64_t k = begin; k < std::min(begin + kGemmKBlock, inner); ++k) {
          chain = std::fma(element_of(a, work.transpose_a, i, k), element_of(b, work.transpose_b, k, j), chain);
        }
        c(i, j) = begin == 0 && !work.accumulate ? chain : c(i, j) + chain;
      }
    }
  }
}

}  // namespace

void ReferenceKernels::gemm(const Gemm& gemm) {
  Gemm work = gemm;
  reference::Widened widened;
  widened.out(work.c);
  widened.in(work.a, work.b);
  reference::with_type(work.c.dtype, [&](auto zero) { gemm_of<decltype(zero)>(work); });
}

}  // namespace trireme::kernels
