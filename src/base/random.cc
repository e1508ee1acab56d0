#include "base/random.h"

#include <bit>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <utility>

#include "base/check.h"

namespace trireme {
namespace {

constexpr int kPhiloxRounds = 10;
constexpr std::uint32_t kPhiloxM0 = 0xD2511F53;
constexpr std::uint32_t kPhiloxM1 = 0xCD9E8D57;
constexpr std::uint32_t kPhiloxW0 = 0x9E3779B9;  // golden ratio
constexpr std::uint32_t kPhiloxW1 = 0xBB67AE85;  // sqrt(3) - 1

std::uint32_t low_word(std::uint64_t x) { return static_cast<std::uint32_t>(x); }
std::uint32_t high_word(std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); }

std::array<std::uint32_t, 4> block_of(RandomKey key, std::uint64_t block) {
  return philox({low_word(block), high_word(block), low_word(key.stream), high_word(key.stream)},
                {low_word(key.seed), high_word(key.seed)});
}

// FNV-1a over bytes, finished with the mixer of splitmix64: FNV alone leaves its high bits weak for short
// input.
class StreamHash {
 public:
  void add_byte(unsigned char byte) { state_ = (state_ ^ byte) * 0x100000001B3u; }
  void add_word(std::uint64_t word) {
    for (int i = 0; i < 8; ++i) add_byte(static_cast<unsigned char>(word >> (8 * i)));
  }
  // Length first, so that ("ab", "c") and ("a", "bc") differ.
  void add_text(std::string_view text) {
    add_word(text.size());
    for (const char c : text) add_byte(static_cast<unsigned char>(c));
  }
  std::uint64_t finish() const {
    std::uint64_t x = state_;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
  }

 private:
  std::uint64_t state_ = 0xCBF29CE484222325u;
};

}  // namespace

std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const std::uint64_t product0 = std::uint64_t{kPhiloxM0} * counter[0];
    const std::uint64_t product1 = std::uint64_t{kPhiloxM1} * counter[2];
    counter = {high_word(product1) ^ counter[1] ^ key[0], low_word(product1), high_word(product0) ^ counter[3] ^ key[1],
               low_word(product0)};
    key[0] += kPhiloxW0;
    key[1] += kPhiloxW1;
  }
  return counter;
}

std::uint64_t stream_of(std::string_view purpose, std::string_view name) {
  StreamHash hash;
  hash.add_text(purpose);
  hash.add_text(name);
  hash.add_byte('t');
  return hash.finish();
}

std::uint64_t stream_of(std::string_view purpose, std::uint64_t a, std::uint64_t b, std::uint64_t c) {
  StreamHash hash;
  hash.add_text(purpose);
  hash.add_word(a);
  hash.add_word(b);
  hash.add_word(c);
  hash.add_byte('n');
  return hash.finish();
}

std::uint32_t random_bits(RandomKey key, std::uint64_t element) {
  return block_of(key, element / 4)[static_cast<std::size_t>(element % 4)];
}

float random_uniform(RandomKey key, std::uint64_t element) {
  return static_cast<float>(random_bits(key, element) >> 8) * 0x1p-24f;
}

double random_normal(RandomKey key, std::uint64_t element) {
  const std::array<std::uint32_t, 4> words = block_of(key, element / 2);
  const auto first = static_cast<std::size_t>(2 * (element % 2));
  const double radius_draw = (static_cast<double>(words[first]) + 1.0) * 0x1p-32;  // (0, 1]: log of 0 cannot be
  const double angle_draw = static_cast<double>(words[first + 1]) * 0x1p-32;
  return std::sqrt(-2.0 * std::log(radius_draw)) * std::cos(2.0 * std::numbers::pi * angle_draw);
}

std::uint64_t permute_index(std::uint64_t index, std::uint64_t count, RandomKey key) {
  constexpr std::uint32_t kFeistelRounds = 8;
  TRIREME_CHECK_GE(count, std::uint64_t{1});
  TRIREME_CHECK_LE(count, std::uint64_t{1} << 62);
  TRIREME_CHECK_LT(index, count);
  const int half_bits = (static_cast<int>(std::bit_width(count - 1)) + 1) / 2;  // at most 31
  const std::uint32_t mask = (std::uint32_t{1} << half_bits) - 1;
  do {  // the walk stays on the cycle of `index` within the power of two, so it meets an index below count
        // again
    auto left = static_cast<std::uint32_t>(index >> half_bits);
    auto right = static_cast<std::uint32_t>(index) & mask;
    for (std::uint32_t round = 0; round < kFeistelRounds; ++round) {
      const std::uint32_t noise = block_of(key, (std::uint64_t{round + 1} << 32) | right)[0];
      left = std::exchange(right, (left ^ noise) & mask);
    }
    index = (std::uint64_t{left} << half_bits) | right;
  } while (index >= count);
  return index;
}

}  // namespace trireme
