#include "base/exact_sum.h"

#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>

#include "base/check.h"

namespace trireme {
namespace {

constexpr int kLimbBits = 32;
constexpr std::int64_t kLimbBase = std::int64_t{1} << kLimbBits;
constexpr int kMantissaBits = 52;
constexpr std::uint64_t kMantissaMask = (std::uint64_t{1} << kMantissaBits) - 1;
constexpr int kExponentMask = 0x7ff;
constexpr int kLowestExponent = -1074;  // the weight of bit 0 of limb 0

// An addition changes a limb by less than 2^32, so after this many a limb is below 2^53: words of 1,000
// states add without overflow even before they are normalised.
constexpr std::int64_t kAdditionsBetweenNormalise = std::int64_t{1} << 20;

using Words = std::array<std::int64_t, ExactSum::kLimbs + 1>;

// Carries, so that every limb but the highest lies in [0, 2^32). The highest keeps the sign.
void carry(Words& words) {
  std::int64_t carried = 0;
  for (std::size_t i = 0; i + 1 < ExactSum::kLimbs; ++i) {
    const std::int64_t limb = words[i] + carried;
    carried = limb >> kLimbBits;  // rounds down: C++20 shifts are arithmetic
    words[i] = limb & (kLimbBase - 1);
  }
  words[ExactSum::kLimbs - 1] += carried;
}

// `count` (at most 64) bits of canonical non-negative limbs, from bit `first` up.
std::uint64_t bits_from(const Words& words, int first, int count) {
  std::uint64_t result = 0;
  for (int i = 0; i < count; ++i) {
    const int bit = first + i;
    const auto limb = static_cast<std::uint64_t>(words[static_cast<std::size_t>(bit / kLimbBits)]);
    result |= ((limb >> (bit % kLimbBits)) & 1) << i;
  }
  return result;
}

bool any_bit_below(const Words& words, int end) {
  for (int limb = 0; limb < end / kLimbBits; ++limb) {
    if (words[static_cast<std::size_t>(limb)] != 0) return true;
  }
  const std::int64_t partial = words[static_cast<std::size_t>(end / kLimbBits)];
  return (partial & ((std::int64_t{1} << (end % kLimbBits)) - 1)) != 0;
}

// The highest set bit of canonical non-negative limbs, or -1.
int highest_bit(const Words& words) {
  for (int limb = ExactSum::kLimbs - 1; limb >= 0; --limb) {
    const auto bits = static_cast<std::uint64_t>(words[static_cast<std::size_t>(limb)]);
    if (bits != 0) return limb * kLimbBits + static_cast<int>(std::bit_width(bits)) - 1;
  }
  return -1;
}

// The nearest double to canonical non-negative limbs, ties to even.
double round_to_double(const Words& words) {
  constexpr int kPrecision = kMantissaBits + 1;
  const int top = highest_bit(words);
  if (top < 0) return 0.0;
  if (top >= ExactSum::kLimbs * kLimbBits) return std::numeric_limits<double>::infinity();
  if (top < kPrecision) {  // exact, subnormals included
    return std::ldexp(static_cast<double>(bits_from(words, 0, top + 1)), kLowestExponent);
  }
  const int low = top - kPrecision + 1;
  std::uint64_t mantissa = bits_from(words, low, kPrecision);
  const bool half = bits_from(words, low - 1, 1) != 0;
  if (half && (any_bit_below(words, low - 1) || (mantissa & 1) != 0)) ++mantissa;
  return std::ldexp(static_cast<double>(mantissa), low + kLowestExponent);
}

}  // namespace

void ExactSum::add(double x) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  const int exponent = static_cast<int>(bits >> kMantissaBits) & kExponentMask;
  if (exponent == kExponentMask) {
    ++words_[kLimbs];
    return;
  }
  if (additions_since_normalise_ >= kAdditionsBetweenNormalise) normalise();
  ++additions_since_normalise_;
  // x = +-mantissa * 2^(shift - 1074): subnormals share the exponent of the smallest normal.
  std::uint64_t mantissa = bits & kMantissaMask;
  if (exponent != 0) mantissa |= std::uint64_t{1} << kMantissaBits;
  const int shift = exponent == 0 ? 0 : exponent - 1;
  const std::int64_t sign = (bits >> 63) != 0 ? -1 : 1;
  const auto limb = static_cast<std::size_t>(shift / kLimbBits);
  const int within = shift % kLimbBits;
  const std::uint64_t low = (mantissa & (kLimbBase - 1)) << within;
  const std::uint64_t high = (mantissa >> kLimbBits) << within;
  words_[limb] += sign * static_cast<std::int64_t>(low & (kLimbBase - 1));
  words_[limb + 1] += sign * static_cast<std::int64_t>((low >> kLimbBits) + (high & (kLimbBase - 1)));
  words_[limb + 2] += sign * static_cast<std::int64_t>(high >> kLimbBits);
}

void ExactSum::add(const ExactSum& other) {
  normalise();
  ExactSum canonical = other;
  canonical.normalise();
  for (std::size_t i = 0; i < words_.size(); ++i) words_[i] += canonical.words_[i];
  additions_since_normalise_ = 1;
}

double ExactSum::value() const {
  ExactSum copy = *this;
  copy.normalise();
  Words& words = copy.words_;
  if (words[kLimbs] != 0) return std::numeric_limits<double>::quiet_NaN();
  if (words[kLimbs - 1] >= 0) return round_to_double(words);
  for (std::size_t i = 0; i < kLimbs; ++i) words[i] = -words[i];
  carry(words);
  return -round_to_double(words);
}

std::array<std::int64_t, ExactSum::kLimbs + 1>& ExactSum::words() {
  normalise();
  additions_since_normalise_ = kAdditionsBetweenNormalise;  // the caller may write anything that it added
  return words_;
}

bool operator==(const ExactSum& a, const ExactSum& b) {
  ExactSum x = a;
  ExactSum y = b;
  x.normalise();
  y.normalise();
  return x.words_ == y.words_;
}

void ExactSum::normalise() {
  carry(words_);
  additions_since_normalise_ = 0;
}

}  // namespace trireme
