#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/narrow_scratch.h"
#include "base/random.h"
#include "engine/kernels/cpu/cpu_kernels.h"
#include "engine/kernels/cpu/pair_block.h"
#include "engine/kernels/cpu/simd.h"
#include "engine/kernels/flushed.h"
#include "engine/kernels/reference/reference_kernels.h"

namespace trireme::kernels {
namespace {

using simd::kPairColumns;
using simd::kPairRows;
using simd::PairBlock;

float value(std::uint16_t number) { return std::bit_cast<float>(static_cast<std::uint32_t>(number) << 16U); }

// Any NaN is one.
std::uint32_t bits(float x) { return std::isnan(x) ? 0x7fc00000U : std::bit_cast<std::uint32_t>(x); }
std::vector<std::uint32_t> bits(const std::vector<float>& values) {
  std::vector<std::uint32_t> all;
  for (const float x : values) all.push_back(bits(x));
  return all;
}

// BF16 numbers: of any bits, or of exponents [least, least + range).
struct Exponents {
  int least = 0, range = 0;
};
std::vector<std::uint16_t> numbers(const char* name, std::int64_t count, Exponents exponents) {
  std::vector<std::uint16_t> all;
  const RandomKey key{5, stream_of("pairs", name)};
  for (std::int64_t i = 0; i < count; ++i) {
    const auto random = static_cast<std::uint32_t>(random_uniform(key, static_cast<std::uint64_t>(i)) * 0x1p32);
    const std::uint32_t any = random >> 16U;
    if (exponents.range == 0) {
      all.push_back(static_cast<std::uint16_t>(any));
    } else {
      const auto exponent = static_cast<std::uint32_t>(exponents.least) +
                            (random & 0xffffU) % static_cast<std::uint32_t>(exponents.range);
      all.push_back(static_cast<std::uint16_t>((any & 0x807fU) | exponent << 7U));
    }
  }
  return all;
}

TEST(FlushedMultiplyAdd, SubnormalNumbersAreZerosOfTheirSign) {
  constexpr float kLeast = std::numeric_limits<float>::min();
  const float subnormal = kLeast / 2;
  EXPECT_EQ(bits(flushed_multiply_add(subnormal, 1.0f, 0.0f)), bits(0.0f));
  EXPECT_EQ(bits(flushed_multiply_add(-1.0f, 0x1p-127f, -0.0f)), bits(-0.0f));
  EXPECT_EQ(bits(flushed_multiply_add(1.0f, kLeast, subnormal)), bits(kLeast));
  EXPECT_EQ(bits(flushed_multiply_add(0x1p-64f, 0x1p-64f, 0.0f)), bits(0.0f));
  EXPECT_EQ(bits(flushed_multiply_add(-0x1p-64f, 0x1p-64f, 0.0f)), bits(-0.0f));
  // Just below the least normal number: rounded with an exponent range that has no end, it reaches it or not.
  EXPECT_EQ(bits(flushed_multiply_add(0x1p-75f, -0x1p-75f, kLeast)), bits(0.0f));
  EXPECT_EQ(bits(flushed_multiply_add(0x1p-75f, -0x1p-76f, kLeast)), bits(kLeast));
  EXPECT_EQ(bits(flushed_multiply_add(0x1.4p-75f, -0x1p-76f, kLeast)), bits(0.0f));
  EXPECT_EQ(bits(flushed_multiply_add(0x1p-75f, 0x1p-75f, -kLeast)), bits(-0.0f));
  EXPECT_EQ(bits(flushed_multiply_add(2.0f, 3.0f, 0x1p100f)), bits(0x1p100f));
  EXPECT_TRUE(std::isnan(flushed_multiply_add(std::numeric_limits<float>::infinity(), subnormal, 1.0f)));
}

enum class AddedTo { kNothing, kC, kOld };

// A block with everything around it NaN, and c as it must be.
class Case {
 public:
  Case(std::int64_t rows, std::int64_t columns, std::int64_t pairs, bool panel, AddedTo added_to, Exponents exponents)
      : old_(numbers("old", added_to == AddedTo::kOld ? kPairRows * kStride : 0, exponents)),
        a_(numbers("a", kPairRows * std::max<std::int64_t>(pairs, 1) * 2, exponents)),
        b_(static_cast<std::size_t>(std::max<std::int64_t>(pairs, 1) * kPairColumns)),
        c_(static_cast<std::size_t>(kPairRows * kStride), std::numeric_limits<float>::quiet_NaN()),
        block_{.a_row = panel ? 2 : 2 * pairs,
               .a_pair = panel ? 2 * kPairRows : 2,
               .c_stride = kStride,
               .rows = rows,
               .columns = columns,
               .pairs = pairs,
               .add = added_to == AddedTo::kC} {
    const std::vector<std::uint16_t> b = numbers("b", 2 * std::ssize(b_), exponents);
    std::memcpy(b_.data(), b.data(), b.size() * sizeof(b[0]));
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < columns; ++j)
        at(c_, i, j) = block_.add ? value(a_[static_cast<std::size_t>(j % 7)]) : 5.0f;
    }
  }

  std::vector<float> expected() const {
    std::vector<float> c = c_;
    for (std::int64_t i = 0; i < block_.rows; ++i) {
      for (std::int64_t j = 0; j < block_.columns; ++j) {
        float sum = 0;
        for (std::int64_t p = 0; p < block_.pairs; ++p) {
          const std::uint16_t* a = a_.data() + i * block_.a_row + p * block_.a_pair;
          const std::uint32_t b = b_[static_cast<std::size_t>(p * kPairColumns + j)];
          sum = flushed_multiply_add(value(a[1]), value(static_cast<std::uint16_t>(b >> 16U)), sum);
          sum = flushed_multiply_add(value(a[0]), value(static_cast<std::uint16_t>(b)), sum);
        }
        if (!old_.empty()) sum += value(old_[static_cast<std::size_t>(i * kStride + j)]);
        at(c, i, j) = block_.add ? at(c, i, j) + sum : sum;
      }
    }
    return c;
  }
  // Also seen: what is rounded is c, and nothing behind it is touched.
  std::vector<float> by(void (*way)(const PairBlock&)) const {
    std::vector<float> c = c_;
    std::vector<std::uint16_t> rounded(c.size(), 77);
    PairBlock block = block_;
    block.rounded = rounded.data();
    block.old = old_.empty() ? nullptr : old_.data();
    block.rounded_stride = kStride;
    block.a = a_.data();
    block.b = b_.data();
    block.c = c.data();
    way(block);
    for (std::size_t i = 0; i < c.size(); ++i) {
      const auto row = static_cast<std::int64_t>(i) / kStride, column = static_cast<std::int64_t>(i) % kStride;
      std::uint16_t expected = 77;
      if (row < block_.rows && column < block_.columns) simd::narrow(DType::kBF16, &c[i], &expected, 1);
      EXPECT_EQ(rounded[i], expected) << i;
    }
    return c;
  }

 private:
  static constexpr std::int64_t kStride = 37;
  static float& at(std::vector<float>& c, std::int64_t i, std::int64_t j) {
    return c[static_cast<std::size_t>(i * kStride + j)];
  }
  std::vector<std::uint16_t> old_, a_;
  std::vector<std::uint32_t> b_;
  std::vector<float> c_;
  PairBlock block_;
};

TEST(PairBlock, BothWaysHaveTheBitsOfTheDefinition) {
  for (const Exponents exponents : {Exponents{}, {120, 12}, {60, 8}, {64, 4}, {185, 6}, {0, 3}}) {
    for (const bool panel : {false, true}) {
      for (const AddedTo added_to : {AddedTo::kNothing, AddedTo::kC, AddedTo::kOld}) {
        for (const auto& [rows, columns, pairs] :
             {std::tuple{1, 1, 1}, {14, 32, 128}, {13, 31, 3}, {5, 16, 40}, {7, 17, 1}, {3, 4, 0}, {14, 9, 2}}) {
          SCOPED_TRACE(fmt::format("{} x {} x {} pairs{}, added to {}, exponents from {}", rows, columns, pairs,
                                   panel ? ", panel" : "", static_cast<int>(added_to), exponents.least));
          const Case one(rows, columns, pairs, panel, added_to, exponents);
          const std::vector<std::uint32_t> expected = bits(one.expected());
          EXPECT_EQ(bits(one.by(simd::pair_block_by_multiply_add)), expected);
          EXPECT_EQ(bits(one.by(simd::pair_block)), expected);
        }
      }
    }
  }
}

TEST(PairBlock, RowsBecomeColumnsOfPairs) {
  for (const auto& [rows, count] : {std::pair{1, 1}, {32, 256}, {31, 255}, {16, 33}, {17, 32}, {9, 64}}) {
    SCOPED_TRACE(fmt::format("{} x {}", rows, count));
    const std::int64_t stride = count + 5;
    const std::vector<std::uint16_t> from = numbers("rows", rows * stride, {});
    const auto words = static_cast<std::size_t>((count + 1) / 2 * kPairColumns);
    std::vector<std::uint32_t> expected(words, 0), one(words + 1, 77), two = one;
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t k = 0; k < count; ++k) {
        expected[static_cast<std::size_t>(k / 2 * kPairColumns + i)] |=
            static_cast<std::uint32_t>(from[static_cast<std::size_t>(i * stride + k)]) << (k % 2 * 16);
      }
    }
    expected.push_back(77);
    simd::transpose_pairs(from.data(), stride, rows, count, one.data());
    simd::transpose_pairs_by_words(from.data(), stride, rows, count, two.data());
    EXPECT_EQ(one, expected);
    EXPECT_EQ(two, expected);
  }
}

// A product of BF16, of which parts are computed.
class Product {
 public:
  Product(std::int64_t m, std::int64_t n, std::int64_t k, bool transpose_a, bool transpose_b)
      : m_(m),
        n_(n),
        k_(k),
        transpose_a_(transpose_a),
        transpose_b_(transpose_b),
        a_(numbers("left", m * k, {118, 10})),
        b_(numbers("right", n * k, {118, 10})) {}

  std::vector<float> part(Kernels& kernels, std::int64_t row, std::int64_t rows, std::int64_t column,
                          std::int64_t columns) const {
    std::vector<float> c(static_cast<std::size_t>(rows * columns));
    const ConstTensorView a = view(a_, transpose_a_ ? k_ : m_, transpose_a_ ? m_ : k_);
    const ConstTensorView b = view(b_, transpose_b_ ? n_ : k_, transpose_b_ ? k_ : n_);
    kernels.gemm({.a = transpose_a_ ? column_range(a, row, rows) : row_range(a, row, rows),
                  .transpose_a = transpose_a_,
                  .b = transpose_b_ ? row_range(b, column, columns) : column_range(b, column, columns),
                  .transpose_b = transpose_b_,
                  .c = make_view(reinterpret_cast<std::byte*>(c.data()), DType::kF32, rows, columns)});
    return c;
  }

 private:
  static ConstTensorView view(const std::vector<std::uint16_t>& values, std::int64_t rows, std::int64_t columns) {
    return make_view(reinterpret_cast<const std::byte*>(values.data()), DType::kBF16, rows, columns);
  }
  std::int64_t m_, n_, k_;
  bool transpose_a_, transpose_b_;
  std::vector<std::uint16_t> a_, b_;
};

// Kernels of some threads, with scratch of NaN: what is read of it was written.
class Threads {
 public:
  explicit Threads(int threads)
      : scratch_(static_cast<std::size_t>(narrow_scratch_elements(threads)), std::numeric_limits<float>::quiet_NaN()),
        kernels_(threads) {
    kernels_.use_scratch(
        make_view(reinterpret_cast<std::byte*>(scratch_.data()), DType::kF32, 1, std::ssize(scratch_)));
  }
  Kernels& kernels() { return kernels_; }

 private:
  std::vector<float> scratch_;
  CpuKernels kernels_;
};

// Of contractions that are one tile, with rows as they lie, and that are several; cut by rows and by columns.
TEST(PairProduct, ThreadsChangeNothing) {
  Threads one(1);
  ReferenceKernels reference;
  for (const bool transpose_a : {false, true}) {
    for (const std::int64_t k : {1, 1030, 3072, 3074, 3077}) {
      for (const auto& [m, n] : {std::pair<std::int64_t, std::int64_t>{1030, 70}, {30, 500}}) {
        SCOPED_TRACE(fmt::format("{} {} x {} x {}", transpose_a ? 'T' : 'N', m, n, k));
        const Product product(m, n, k, transpose_a, false);
        const std::vector<float> whole = product.part(one.kernels(), 0, m, 0, n);
        for (const int threads : {2, 3, 4, 7}) {
          EXPECT_EQ(product.part(Threads(threads).kernels(), 0, m, 0, n), whole) << threads << " threads";
        }
        const float last[2] = {whole[whole.size() - 2], whole[whole.size() - 1]};
        EXPECT_EQ(product.part(reference, m - 1, 1, n - 2, 2), std::vector<float>(last, last + 2));
      }
    }
  }
}

TEST(PairProduct, PartsAreThoseOfTheWhole) {
  Threads of_one(1), of_two(2);
  Kernels &one = of_one.kernels(), &two = of_two.kernels();
  ReferenceKernels reference;
  for (const bool transpose_a : {false, true}) {
    for (const bool transpose_b : {false, true}) {
      const std::int64_t m = 530, n = 1060, k = 301;
      const Product product(m, n, k, transpose_a, transpose_b);
      const std::vector<float> whole = product.part(one, 0, m, 0, n);
      EXPECT_EQ(product.part(two, 0, m, 0, n), whole);
      for (const auto& [row, rows, column, columns] :
           {std::tuple{0, 1, 0, 1060}, {529, 1, 1059, 1}, {511, 4, 1000, 60}, {100, 15, 33, 70}, {0, 530, 7, 1}}) {
        SCOPED_TRACE(fmt::format("{}{} {} rows from {}, {} columns from {}", transpose_a ? 'T' : 'N',
                                 transpose_b ? 'T' : 'N', rows, row, columns, column));
        std::vector<float> expected;
        for (std::int64_t i = row; i < row + rows; ++i) {
          const auto begin = whole.begin() + i * n + column;
          expected.insert(expected.end(), begin, begin + columns);
        }
        EXPECT_EQ(product.part(one, row, rows, column, columns), expected);
        EXPECT_EQ(product.part(two, row, rows, column, columns), expected);
        EXPECT_EQ(product.part(reference, row, rows, column, columns), expected);
      }
    }
  }
}

}  // namespace
}  // namespace trireme::kernels
