#include "base/exact_sum.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"

namespace trireme {
namespace {

__extension__ using Int128 = __int128;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kLargest = std::numeric_limits<double>::max();
constexpr double kSmallest = std::numeric_limits<double>::denorm_min();

std::uint64_t bits_of(double x) { return std::bit_cast<std::uint64_t>(x); }

double sum_of(const std::vector<double>& values) {
  ExactSum sum;
  for (const double x : values) sum.add(x);
  return sum.value();
}

std::uint64_t draw(std::uint64_t test, std::uint64_t i) {
  const RandomKey key{test, 0};
  return (std::uint64_t{random_bits(key, 2 * i)} << 32) | random_bits(key, 2 * i + 1);
}

// Any finite double, all exponents alike.
double any_double(std::uint64_t test, std::uint64_t i) {
  const double x = std::bit_cast<double>(draw(test, i));
  return std::isfinite(x) ? x : 1.0;
}

std::vector<double> shuffled(std::vector<double> values, std::uint64_t seed) {
  std::vector<double> result(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    result[i] = values[static_cast<std::size_t>(permute_index(i, values.size(), {seed, 1}))];
  }
  return result;
}

TEST(ExactSumTest, NothingIsZero) { EXPECT_EQ(bits_of(ExactSum().value()), bits_of(0.0)); }

TEST(ExactSumTest, OneDoubleComesBackBitByBit) {
  for (const double x : {1.0, -1.0, 0.1, 1e308, -1e-308, kSmallest, -kSmallest, kLargest, -kLargest, 0x1p-1022,
                         0x1.fffffffffffffp-1023, 3.0, 1e22}) {
    EXPECT_EQ(bits_of(sum_of({x})), bits_of(x)) << x;
  }
  for (std::uint64_t i = 0; i < 10000; ++i) {
    const double x = any_double(1, i);
    EXPECT_EQ(sum_of({x}), x);
  }
}

TEST(ExactSumTest, TwoDoublesRoundAsTheHardwareDoes) {
  for (std::uint64_t i = 0; i < 20000; ++i) {
    const double a = any_double(2, 2 * i);
    // Near in exponent, so that rounding matters.
    const double b = std::ldexp(any_double(2, 2 * i + 1) < 0 ? -1.3 : 1.7, std::ilogb(a) - static_cast<int>(i % 60));
    EXPECT_EQ(bits_of(sum_of({a, b})), bits_of(a + b + 0.0)) << a << " + " << b;
  }
}

TEST(ExactSumTest, TiesGoToEven) {
  EXPECT_EQ(sum_of({1.0, 0x1p-53}), 1.0);
  EXPECT_EQ(sum_of({1.0, 0x1p-53, 0x1p-1074}), 1.0 + 0x1p-52);
  EXPECT_EQ(sum_of({1.0, 0x1p-52, 0x1p-53}), 1.0 + 0x1p-51);
  EXPECT_EQ(sum_of({1.0, 0x1p-52, 0x1p-53, -0x1p-1074}), 1.0 + 0x1p-52);
}

TEST(ExactSumTest, HugeTermsCancel) {
  EXPECT_EQ(sum_of({kLargest, kSmallest, -kLargest}), kSmallest);
  EXPECT_EQ(sum_of({1e308, 1e308, 1.5, -1e308, -1e308}), 1.5);
  EXPECT_EQ(sum_of({1e16, 1.0, -1e16}), 1.0);
  EXPECT_EQ(bits_of(sum_of({-1.0, 1.0})), bits_of(0.0));
}

TEST(ExactSumTest, ASumBeyondTheLargestDoubleIsInfiniteUntilItComesBack) {
  EXPECT_EQ(sum_of({kLargest, kLargest}), kInfinity);
  EXPECT_EQ(sum_of({-kLargest, -kLargest}), -kInfinity);
  EXPECT_EQ(sum_of({kLargest, kLargest, -kLargest}), kLargest);
  EXPECT_EQ(sum_of({kLargest, 0x1p970}), kInfinity);  // half an ulp beyond: the tie goes to even
  EXPECT_EQ(sum_of({kLargest, 0x1p969}), kLargest);
}

TEST(ExactSumTest, OrderDoesNotMatter) {
  std::vector<double> values;
  for (std::uint64_t i = 0; i < 2000; ++i) values.push_back(any_double(3, i));
  const std::uint64_t expected = bits_of(sum_of(values));
  for (std::uint64_t seed = 0; seed < 20; ++seed) EXPECT_EQ(bits_of(sum_of(shuffled(values, seed))), expected);
  std::sort(values.begin(), values.end());
  EXPECT_EQ(bits_of(sum_of(values)), expected);
  std::sort(values.begin(), values.end(), [](double a, double b) { return std::abs(a) < std::abs(b); });
  EXPECT_EQ(bits_of(sum_of(values)), expected);
}

// Terms that are integers times 2^-40 add exactly in 128 bits; the conversion to double rounds once, to even.
TEST(ExactSumTest, AgreesWithIntegersOf128Bits) {
  for (std::uint64_t test = 0; test < 200; ++test) {
    Int128 exact = 0;
    ExactSum sum;
    for (std::uint64_t i = 0; i < 500; ++i) {
      const std::uint64_t bits = draw(100 + test, i);
      const std::int64_t mantissa = static_cast<std::int64_t>(bits) >> 11;
      const int scale = static_cast<int>(bits % 50);
      exact += static_cast<Int128>(mantissa) << scale;
      sum.add(std::ldexp(static_cast<double>(mantissa), scale - 40));
    }
    EXPECT_EQ(bits_of(sum.value()), bits_of(std::ldexp(static_cast<double>(exact), -40)));
  }
}

TEST(ExactSumTest, SubnormalsAddExactly) {
  ExactSum sum;
  for (int i = 0; i < 1000; ++i) sum.add(kSmallest);
  EXPECT_EQ(sum.value(), 1000 * kSmallest);
  for (int i = 0; i < 999; ++i) sum.add(-kSmallest);
  EXPECT_EQ(sum.value(), kSmallest);
}

TEST(ExactSumTest, NonFiniteAddendsMakeItNaN) {
  for (const double bad : {kInfinity, -kInfinity, std::numeric_limits<double>::quiet_NaN()}) {
    ExactSum sum;
    sum.add(1.0);
    sum.add(bad);
    EXPECT_TRUE(std::isnan(sum.value()));
    ExactSum other;
    other.add(sum);
    EXPECT_TRUE(std::isnan(other.value()));
  }
}

TEST(ExactSumTest, ManyAdditionsCarry) {
  ExactSum sum;
  constexpr int kCount = 3'000'000;  // beyond the additions between two carries
  for (int i = 0; i < kCount; ++i) sum.add(0x1.fffffffffffffp0);
  EXPECT_EQ(sum.value(), static_cast<double>(kCount) * 2 - static_cast<double>(kCount) * 0x1p-52);
}

// What an integer all-reduce over ranks does: words of k partial sums, added element by element.
TEST(ExactSumTest, WordsOfPartialSumsAddToTheWholeSum) {
  std::vector<double> values;
  for (std::uint64_t i = 0; i < 3000; ++i) values.push_back(any_double(5, i));
  ExactSum whole;
  for (const double x : values) whole.add(x);
  for (const std::size_t ranks : {1u, 2u, 3u, 7u, 64u}) {
    std::vector<ExactSum> partial(ranks);
    for (std::size_t i = 0; i < values.size(); ++i) partial[(i * i) % ranks].add(values[i]);
    ExactSum merged;
    ExactSum added;
    for (ExactSum& sum : partial) {
      added.add(sum);
      for (std::size_t w = 0; w < merged.words().size(); ++w) merged.words()[w] += sum.words()[w];
    }
    EXPECT_EQ(bits_of(merged.value()), bits_of(whole.value()));
    EXPECT_TRUE(merged == whole);
    EXPECT_TRUE(added == whole);
    EXPECT_EQ(merged.words(), whole.words());
  }
}

TEST(ExactSumTest, UnequalSumsDiffer) {
  ExactSum a;
  ExactSum b;
  a.add(1.0);
  b.add(1.0);
  EXPECT_TRUE(a == b);
  b.add(kSmallest);
  EXPECT_FALSE(a == b);
}

TEST(ExactSumTest, EqualSumsByDifferentAddendsHaveEqualWords) {
  ExactSum a;
  ExactSum b;
  a.add(3.0);
  b.add(-1e300);
  b.add(5.0);
  b.add(1e300);
  b.add(-2.0);
  EXPECT_TRUE(a == b);
  EXPECT_EQ(a.words(), b.words());
}

}  // namespace
}  // namespace trireme
