#pragma once

// The multiply-add of products of BF16 numbers (kernels.h): subnormal operands are zeros, and so is a subnormal result,
// of its sign. Whether a result is subnormal is seen after it is rounded as if exponents had no lower end: what x86
// does with MXCSR's FTZ and DAZ, and what VDPBF16PS does always.

#include <cmath>
#include <limits>

namespace trireme::kernels {

inline float flushed(float x) { return std::abs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0f, x) : x; }

// fma(a, b, c). a and b have at most 8 bits, so that doubles tell on which side of the limit the exact result lies.
inline float flushed_multiply_add(float a, float b, float c) {
  constexpr float kLeast = std::numeric_limits<float>::min();
  a = flushed(a);
  b = flushed(b);
  c = flushed(c);
  const float sum = std::fma(a, b, c);
  if (!(std::abs(sum) <= kLeast)) return sum;
  const double exact = std::fma(static_cast<double>(a), static_cast<double>(b), static_cast<double>(c));
  constexpr double kRoundsToLeast = kLeast * (1 - 0x1p-25);
  return std::copysign(std::abs(exact) >= kRoundsToLeast ? kLeast : 0.0f, static_cast<float>(exact));
}

}  // namespace trireme::kernels
