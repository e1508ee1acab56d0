#pragma once

// Chances of a test, the same each time.

#include <cstdint>

#include "base/random.h"

namespace trireme::supervisor {

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : key_{seed, 0} {}
  int upto(int most) { return 1 + static_cast<int>(random_bits(key_, next_++) % static_cast<std::uint32_t>(most)); }
  bool coin() { return upto(2) == 1; }

 private:
  RandomKey key_;
  std::uint64_t next_ = 0;
};

}  // namespace trireme::supervisor
