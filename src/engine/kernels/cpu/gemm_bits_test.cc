// What law 2 rests on (docs/decisions/0002-gemm-k-blocks.md): facts of the library that the program was linked with, on
// the CPU that it runs on. If one of these fails, curves of different layouts are no longer equal.

#include <algorithm>
#include <cstring>
#include <vector>

#include <fmt/format.h>

#include "engine/kernels/cpu/cpu_kernels.h"
#include "engine/kernels/cpu/product.h"
#include "engine/kernels/reference/reference_kernels.h"
#include "engine/kernels/reference/test_tensor.h"

namespace trireme::kernels {
namespace {

using Tensor = TestTensor<float>;

// A product of random operands; its operands may be padded, and parts of it may be computed.
struct Problem {
  std::int64_t m, n, k;
  bool transpose_a = false;
  bool transpose_b = false;
  bool accumulate = false;
  std::int64_t padding = 0;  // between rows of a, b and c

  std::string name() const {
    return fmt::format("{}{} {} x {} x {}{}", transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', m, n, k,
                       accumulate ? ", accumulated" : "");
  }
};

// The first rows and columns.
template <class T>
auto corner(T& padded, std::int64_t rows, std::int64_t columns) {
  return column_range(row_range(padded.view(), 0, rows), 0, columns);
}

class Product {
 public:
  explicit Product(const Problem& problem)
      : problem_(problem),
        a_(random(problem.transpose_a ? problem.k : problem.m, problem.transpose_a ? problem.m : problem.k, "a")),
        b_(random(problem.transpose_b ? problem.n : problem.k, problem.transpose_b ? problem.k : problem.n, "b")),
        c_(random(problem.m, problem.n, "c")) {}

  // Rows and columns of c, by `kernels`, contiguous.
  std::vector<float> part(Kernels& kernels, std::int64_t row, std::int64_t rows, std::int64_t column,
                          std::int64_t columns) const {
    Tensor c = c_;
    const TensorView result = column_range(row_range(corner(c, problem_.m, problem_.n), row, rows), column, columns);
    const ConstTensorView a =
        corner(a_, problem_.transpose_a ? problem_.k : problem_.m, problem_.transpose_a ? problem_.m : problem_.k);
    const ConstTensorView b =
        corner(b_, problem_.transpose_b ? problem_.n : problem_.k, problem_.transpose_b ? problem_.k : problem_.n);
    kernels.gemm({.a = problem_.transpose_a ? column_range(a, row, rows) : row_range(a, row, rows),
                  .transpose_a = problem_.transpose_a,
                  .b = problem_.transpose_b ? row_range(b, column, columns) : column_range(b, column, columns),
                  .transpose_b = problem_.transpose_b,
                  .c = result,
                  .accumulate = problem_.accumulate});
    std::vector<float> values;
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < columns; ++j) values.push_back(c(row + i, column + j));
    }
    return values;
  }
  std::vector<float> all(Kernels& kernels) const { return part(kernels, 0, problem_.m, 0, problem_.n); }
  // The same elements of a whole result.
  std::vector<float> cut(const std::vector<float>& whole, std::int64_t row, std::int64_t rows, std::int64_t column,
                         std::int64_t columns) const {
    std::vector<float> values;
    for (std::int64_t i = row; i < row + rows; ++i) {
      for (std::int64_t j = column; j < column + columns; ++j) {
        values.push_back(whole[static_cast<std::size_t>(i * problem_.n + j)]);
      }
    }
    return values;
  }

 private:
  // The same numbers whatever the padding.
  Tensor random(std::int64_t rows, std::int64_t columns, std::string_view name) const {
    const Tensor numbers = Tensor::random(rows, columns, name);
    Tensor padded(rows, columns + problem_.padding);
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < columns; ++j) padded(i, j) = numbers(i, j);
    }
    return padded;
  }

  Problem problem_;
  Tensor a_, b_, c_;
};

void expect_equal(const std::vector<float>& result, const std::vector<float>& expected, const std::string& what) {
  ASSERT_EQ(result.size(), expected.size());
  std::size_t differ = 0;
  for (std::size_t i = 0; i < result.size(); ++i) {
    differ += std::memcmp(&result[i], &expected[i], sizeof(float)) == 0 ? 0 : 1;
  }
  EXPECT_EQ(differ, 0u) << what << ": so many elements of " << result.size() << " differ";
}

template <class Function>
void for_each_transposition(const Function& function) {
  for (const bool transpose_a : {false, true}) {
    for (const bool transpose_b : {false, true}) function(transpose_a, transpose_b);
  }
}

class GemmBits : public testing::TestWithParam<std::int64_t> {};  // of a contraction of this length

// The definition in kernels.h, to the bit.
TEST_P(GemmBits, AreTheReferences) {
  constexpr std::int64_t kShapes[][2] = {{1, 1},   {1, 64}, {2, 3},   {7, 33}, {15, 70},
                                         {16, 17}, {64, 1}, {65, 48}, {33, 70}};
  ReferenceKernels reference;
  CpuKernels one(1), two(2);
  for (const auto& [m, n] : kShapes) {
    for_each_transposition([&, rows = m, columns = n](bool transpose_a, bool transpose_b) {
      for (const bool accumulate : {false, true}) {
        const Problem problem{rows, columns, GetParam(), transpose_a, transpose_b, accumulate};
        const Product product(problem);
        const std::vector<float> expected = product.all(reference);
        expect_equal(product.all(one), expected, problem.name());
        expect_equal(product.all(two), expected, problem.name() + ", two threads");
        Problem strided = problem;
        strided.padding = 5;
        expect_equal(Product(strided).all(two), expected, problem.name() + ", strided");
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Contractions, GemmBits, testing::Values(1, 17, 255, 256, 257, 384, 700, 1024));

// Rows of c are tokens of a micro-batch, columns are a shard's: neither may see what else is computed, how many threads
// share it, or how its operands lie in memory.
TEST(GemmBitsParts, EqualTheWhole) {
  ReferenceKernels reference;
  CpuKernels one(1), two(2);
  for (const std::int64_t padding : {0, 3}) {
    for_each_transposition([&](bool transpose_a, bool transpose_b) {
      const Problem problem{130, 390, 700, transpose_a, transpose_b, false, padding};
      const Product product(problem);
      const std::vector<float> whole = product.all(one);
      expect_equal(product.all(two), whole, problem.name() + ", two threads");
      const auto expect_part = [&](std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns) {
        const std::vector<float> expected = product.cut(whole, row, rows, column, columns);
        const std::string what = fmt::format("{}, padding {}, rows {}+{}, columns {}+{}", problem.name(), padding, row,
                                             rows, column, columns);
        expect_equal(product.part(one, row, rows, column, columns), expected, what);
        expect_equal(product.part(two, row, rows, column, columns), expected, what + ", two threads");
      };
      for (const std::int64_t column : {0, 195}) expect_part(0, 130, column, 195);  // halves
      for (std::int64_t column = 0; column < 390; column += 39) expect_part(0, 130, column, 39);
      for (const std::int64_t row : {0, 65}) expect_part(row, 65, 0, 390);
      for (const std::int64_t row : {0, 1, 64, 129}) expect_part(row, 1, 0, 390);
      for (const std::int64_t column : {0, 1, 389}) expect_part(0, 130, column, 1);
      expect_part(17, 31, 100, 77);
      expect_equal(product.part(reference, 17, 3, 100, 5), product.cut(whole, 17, 3, 100, 5), "reference");
    });
  }
}

// Shapes for which the library has reasons to cut the contraction by itself: it is long, or there is little else to
// share out.
TEST(GemmBitsParts, LargeShapes) {
  ReferenceKernels reference;
  CpuKernels one(1), two(2);
  const Problem problems[] = {{384, 384, 4096, false, true},  {384, 48, 4096, false, true},
                              {768, 96, 2048, true, false},   {16, 16, 4096, false, false},
                              {256, 2304, 768, false, false}, {1, 768, 3072, false, true},
                              {4, 4, 20000, true, false}};
  for (const Problem& problem : problems) {
    const Product product(problem);
    const std::vector<float> whole = product.all(one);
    expect_equal(product.all(two), whole, problem.name() + ", two threads");
    const std::int64_t rows = std::min<std::int64_t>(problem.m, 3), columns = std::min<std::int64_t>(problem.n, 4);
    for (const std::int64_t row : {std::int64_t{0}, (problem.m - rows) / 2, problem.m - rows}) {
      for (const std::int64_t column : {std::int64_t{0}, (problem.n - columns) / 2, problem.n - columns}) {
        expect_equal(product.part(reference, row, rows, column, columns),
                     product.cut(whole, row, rows, column, columns), problem.name() + ", reference");
      }
    }
    const std::int64_t half = (problem.n + 1) / 2;
    expect_equal(product.part(two, 0, problem.m, 0, half), product.cut(whole, 0, problem.m, 0, half),
                 problem.name() + ", half of the columns");
  }
}

// Weight gradients: tokens may come in several calls, if each but the last has a multiple of kGemmKBlock of them.
TEST(GemmBitsParts, AContractionInSeveralCalls) {
  CpuKernels kernels(2);
  const Tensor a = Tensor::random(4 * kGemmKBlock + 40, 33, "a"), b = Tensor::random(a.rows, 65, "b");
  Tensor at_once(33, 65), in_parts(33, 65);
  kernels.gemm({.a = a.view(), .transpose_a = true, .b = b.view(), .c = at_once.view()});
  const std::int64_t cuts[] = {0, kGemmKBlock, 3 * kGemmKBlock, a.rows};
  for (std::size_t i = 0; i < 3; ++i) {
    kernels.gemm({.a = row_range(a.view(), cuts[i], cuts[i + 1] - cuts[i]),
                  .transpose_a = true,
                  .b = row_range(b.view(), cuts[i], cuts[i + 1] - cuts[i]),
                  .c = in_parts.view(),
                  .accumulate = i > 0});
  }
  expect_equal(in_parts.values, at_once.values, "parts");
}

// c is added once, at the end of a block's chain, not taken as its start: these numbers show the difference.
TEST(GemmBitsParts, AccumulationIsOneAdditionAfterTheChain) {
  Tensor a(1, 200, 1.0f), b(200, 1, 1.0f), c(1, 1, 16777216.0f);  // 2^24: + 1 is lost
  CpuKernels kernels(1);
  kernels.gemm({.a = a.view(), .b = b.view(), .c = c.view(), .accumulate = true});
  EXPECT_EQ(c(0, 0), 16777416.0f);
}

TEST(GemmBitsParts, EmptyContraction) {
  for (const bool accumulate : {false, true}) {
    Tensor c(3, 5, 7.0f), a(3, 1), b(1, 5);
    const ConstTensorView no_a = column_range(ConstTensorView(a.view()), 0, 0);
    const ConstTensorView no_b = row_range(ConstTensorView(b.view()), 0, 0);
    CpuKernels(2).gemm({.a = no_a, .b = no_b, .c = c.view(), .accumulate = accumulate});
    for (const float value : c.values) EXPECT_EQ(value, accumulate ? 7.0f : 0.0f);
  }
}

}  // namespace
}  // namespace trireme::kernels
