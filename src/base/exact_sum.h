#pragma once

// A sum of doubles that does not depend on their order: the integer accumulator for loss, gradient norm and
// counts. Every finite double is an integer multiple of 2^-1074, so it is added exactly into a wide
// fixed-point integer (Kulisch's accumulator), kept as 64-bit limbs of 32 bits each; limbs add independently,
// so partial sums of ranks add with an integer all-reduce over words(). Rounded once, at the end.

#include <array>
#include <cstdint>

namespace trireme {

class ExactSum {
 public:
  static constexpr int kLimbs = 68;  // 2^-1074 .. 2^1023 and 2^31 additions of headroom

  // Adds one double. NaN and infinity are remembered and make value() NaN; a sum beyond the largest double is
  // infinite.
  void add(double x);
  void add(const ExactSum& other);
  // The sum, rounded once to the nearest double (ties to even).
  double value() const;

  // The state as integers, for an integer all-reduce: element-wise addition of two states is the state of the
  // sum. The last word counts non-finite addends. The writable form carries first, so equal sums give equal
  // words and the words of up to 2^20 ranks add without overflow; write back sums of such states only.
  std::array<std::int64_t, kLimbs + 1>& words();
  const std::array<std::int64_t, kLimbs + 1>& words() const { return words_; }

  friend bool operator==(const ExactSum& a, const ExactSum& b);

 private:
  void normalise();
  std::array<std::int64_t, kLimbs + 1> words_{};
  std::int64_t additions_since_normalise_ = 0;
};

}  // namespace trireme
