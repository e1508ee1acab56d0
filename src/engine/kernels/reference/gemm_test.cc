#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "engine/kernels/reference/reference_kernels.h"
#include "engine/kernels/reference/test_tensor.h"

namespace trireme::kernels {
namespace {

template <class T>
TestTensor<T> transposed(const TestTensor<T>& x) {
  TestTensor<T> y(x.columns, x.rows);
  for (std::int64_t i = 0; i < x.rows; ++i) {
    for (std::int64_t j = 0; j < x.columns; ++j) y(j, i) = x(i, j);
  }
  return y;
}

template <class T>
class ReferenceGemm : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(ReferenceGemm, Types);

TYPED_TEST(ReferenceGemm, AllTranspositionsAndAccumulation) {
  using T = TypeParam;
  constexpr double tolerance = sizeof(T) == 4 ? 2e-6 : 1e-14;
  ReferenceKernels kernels;
  const auto a = TestTensor<T>::random(3, 5, "a");
  const auto b = TestTensor<T>::random(5, 4, "b");
  const auto a_transposed = transposed(a);
  const auto b_transposed = transposed(b);
  for (const bool transpose_a : {false, true}) {
    for (const bool transpose_b : {false, true}) {
      for (const bool accumulate : {false, true}) {
        auto c = TestTensor<T>::random(3, 4, "c");
        const auto before = c;
        kernels.gemm({.a = transpose_a ? a_transposed.view() : a.view(),
                      .transpose_a = transpose_a,
                      .b = transpose_b ? b_transposed.view() : b.view(),
                      .transpose_b = transpose_b,
                      .c = c.view(),
                      .accumulate = accumulate});
        for (std::int64_t i = 0; i < 3; ++i) {
          for (std::int64_t j = 0; j < 4; ++j) {
            double expected = accumulate ? before(i, j) : 0.0;
            for (std::int64_t k = 0; k < 5; ++k)
              expected += static_cast<double>(a(i, k)) * static_cast<double>(b(k, j));
            EXPECT_NEAR(c(i, j), expected, tolerance);
          }
        }
      }
    }
  }
}

TYPED_TEST(ReferenceGemm, BlocksFromZeroAddedInAscendingOrder) {
  using T = TypeParam;
  ReferenceKernels kernels;
  const std::int64_t inner = 2 * kGemmKBlock + 70;
  const auto a = TestTensor<T>::random(2, inner, "a");
  const auto b = TestTensor<T>::random(inner, 2, "b");
  for (const bool accumulate : {false, true}) {
    auto c = TestTensor<T>::random(2, 2, "c");
    const auto before = c;
    kernels.gemm({.a = a.view(), .b = b.view(), .c = c.view(), .accumulate = accumulate});
    for (std::int64_t i = 0; i < 2; ++i) {
      for (std::int64_t j = 0; j < 2; ++j) {
        T chains[3] = {0, 0, 0};
        for (std::int64_t k = 0; k < inner; ++k) {
          T& chain = chains[k / kGemmKBlock];
          chain = std::fma(a(i, k), b(k, j), chain);
        }
        const T first = accumulate ? before(i, j) + chains[0] : chains[0];
        EXPECT_EQ(c(i, j), (first + chains[1]) + chains[2]);
      }
    }
  }
}

TYPED_TEST(ReferenceGemm, StridedPartsGiveTheSameBits) {
  using T = TypeParam;
  ReferenceKernels kernels;
  const auto a = TestTensor<T>::random(6, 300, "a");
  const auto b = TestTensor<T>::random(300, 8, "b");
  TestTensor<T> whole(6, 8);
  kernels.gemm({.a = a.view(), .b = b.view(), .c = whole.view()});
  TestTensor<T> part(6, 8, T{7});
  kernels.gemm({.a = row_range(a.view(), 2, 3),
                .b = column_range(b.view(), 5, 3),
                .c = column_range(row_range(part.view(), 2, 3), 5, 3)});
  for (std::int64_t i = 0; i < 6; ++i) {
    for (std::int64_t j = 0; j < 8; ++j) {
      const bool inside = i >= 2 && i < 5 && j >= 5;
      EXPECT_EQ(part(i, j), inside ? whole(i, j) : T{7});
    }
  }
}

TEST(ReferenceGemmChecks, AnEmptyContraction) {
  ReferenceKernels kernels;
  const TestTensor<float> a(2, 0);
  const TestTensor<float> b(0, 2);
  TestTensor<float> c(2, 2, 3.0F);
  kernels.gemm({.a = a.view(), .b = b.view(), .c = c.view(), .accumulate = true});
  EXPECT_EQ(c(1, 1), 3.0F);
  kernels.gemm({.a = a.view(), .b = b.view(), .c = c.view()});
  EXPECT_EQ(c(1, 1), 0.0F);
}

TEST(ReferenceGemmChecks, ShapesAndTypesAreChecked) {
  ReferenceKernels kernels;
  const TestTensor<float> a(2, 3);
  const TestTensor<float> b(4, 2);
  const TestTensor<double> wide(3, 2);
  TestTensor<float> c(2, 2);
  EXPECT_THROW(kernels.gemm({.a = a.view(), .b = b.view(), .c = c.view()}), InternalError);
  EXPECT_THROW(kernels.gemm({.a = a.view(), .b = wide.view(), .c = c.view()}), InternalError);
  EXPECT_THROW(kernels.gemm({.a = a.view(), .b = ConstTensorView(), .c = c.view()}), InternalError);
  TensorView half = c.view();
  half.dtype = DType::kBF16;
  EXPECT_THROW(kernels.gemm({.a = a.view(), .b = b.view(), .c = half}), InternalError);
}

}  // namespace
}  // namespace trireme::kernels
