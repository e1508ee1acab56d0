#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>

#include "engine/kernels/flushed.h"
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

// The sum of a block of the contraction (kernels.h): factors(k) are those of a term.
template <class T>
T chain(std::int64_t begin, std::int64_t end, const auto& factors) {
  T sum = 0;
  for (std::int64_t k = begin; k < end; ++k) sum = std::fma(factors(k).first, factors(k).second, sum);
  return sum;
}
float chain_of_pairs(std::int64_t begin, std::int64_t end, const auto& factors) {
  float sum = 0;
  for (std::int64_t k = begin; k < end; k += 2) {
    const auto [a, b] = k + 1 < end ? factors(k + 1) : std::pair(0.0f, 0.0f);
    sum = flushed_multiply_add(a, b, sum);
    sum = flushed_multiply_add(factors(k).first, factors(k).second, sum);
  }
  return sum;
}

// The blocks are added to c one after the other; without accumulate the first is stored.
template <class T>
void gemm_of(const Gemm& work, bool pairs) {
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
        const std::int64_t end = std::min(begin + kGemmKBlock, inner);
        const auto factors = [&](std::int64_t k) {
          return std::pair(element_of(a, work.transpose_a, i, k), element_of(b, work.transpose_b, k, j));
        };
        T sum;
        if constexpr (std::is_same_v<T, float>) {
          sum = pairs ? chain_of_pairs(begin, end, factors) : chain<T>(begin, end, factors);
        } else {
          sum = chain<T>(begin, end, factors);
        }
        c(i, j) = begin == 0 && !work.accumulate ? sum : c(i, j) + sum;
      }
    }
  }
}

}  // namespace

void ReferenceKernels::gemm(const Gemm& gemm) {
  Gemm work = gemm;
  const bool pairs = work.a.dtype == DType::kBF16 || work.b.dtype == DType::kBF16;
  reference::Widened widened;
  widened.out(work.c);
  if (pairs) widened.rounded(DType::kBF16, work.a, work.b);
  widened.in(work.a, work.b);
  reference::with_type(work.c.dtype, [&](auto zero) { gemm_of<decltype(zero)>(work, pairs); });
}

}  // namespace trireme::kernels
