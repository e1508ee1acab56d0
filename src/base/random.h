#pragma once

// Counter-based random numbers (Philox4x32-10; Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
// SC 2011). A number is a pure function of (seed, stream, element): no state, no order, no rank. A shard, a
// thread count or a restart cannot change it.

#include <array>
#include <cstdint>
#include <string_view>

namespace trireme {

// Philox4x32 with 10 rounds. The published test vectors hold (random_test.cc).
std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key);

// What a number belongs to: a seed and a stream (a logical tensor's name, or a sample's index and a layer).
struct RandomKey {
  std::uint64_t seed = 0;
  std::uint64_t stream = 0;
};

// A stream from words, e.g. stream_of("init", fnv of the tensor's name). Distinct inputs give distinct
// streams with overwhelming probability (64-bit hash).
std::uint64_t stream_of(std::string_view purpose, std::string_view name);
std::uint64_t stream_of(std::string_view purpose, std::uint64_t a, std::uint64_t b = 0, std::uint64_t c = 0);

// 32 random bits of one element: word (element % 4) of philox((element / 4, stream), seed).
std::uint32_t random_bits(RandomKey key, std::uint64_t element);
// Uniform in [0, 1) with 24 bits.
float random_uniform(RandomKey key, std::uint64_t element);
// Normal(0, 1) of one element, by Box-Muller on its own pair of draws, in double.
double random_normal(RandomKey key, std::uint64_t element);

// A keyed permutation of [0, count): index -> a distinct index, without a table (a Feistel network over the
// next even power of two, walked until it lands inside). count in [1, 2^62].
std::uint64_t permute_index(std::uint64_t index, std::uint64_t count, RandomKey key);

}  // namespace trireme
