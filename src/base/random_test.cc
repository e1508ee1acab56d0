#include "base/random.h"

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.h"

namespace trireme {
namespace {

using Words4 = std::array<std::uint32_t, 4>;

// The known answers that accompany the paper's Philox4x32-10.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Words4{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const std::uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox({ones, ones, ones, ones}, {ones, ones}), (Words4{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words4{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomBits, AreTheWordsOfOneBlock) {
  const RandomKey key{0x1122334455667788, 0x99aabbccddeeff00};
  const Words4 block = philox({5, 0, 0xddeeff00, 0x99aabbcc}, {0x55667788, 0x11223344});
  for (std::uint64_t i = 0; i < 4; ++i) EXPECT_EQ(random_bits(key, 20 + i), block[i]);
}

TEST(RandomBits, SeedStreamAndElementAllMatter) {
  std::set<std::uint32_t> seen;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    for (std::uint64_t stream = 0; stream < 4; ++stream) {
      for (std::uint64_t element = 0; element < 8; ++element) seen.insert(random_bits({seed, stream}, element));
    }
  }
  EXPECT_EQ(seen.size(), 128u);
}

TEST(RandomUniform, IsInRangeWithTheRightMoments) {
  constexpr int kCount = 100000;
  double sum = 0;
  double squares = 0;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    const float x = random_uniform({1, 2}, i);
    ASSERT_GE(x, 0.0f);
    ASSERT_LT(x, 1.0f);
    sum += x;
    squares += double{x} * double{x};
  }
  EXPECT_NEAR(sum / kCount, 0.5, 0.005);
  EXPECT_NEAR(squares / kCount, 1.0 / 3, 0.005);
}

TEST(RandomNormal, HasTheRightMoments) {
  constexpr int kCount = 200000;
  double moment[5] = {};
  double neighbours = 0;
  double last = 0;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    const double x = random_normal({7, 9}, i);
    ASSERT_TRUE(std::isfinite(x));
    for (int power = 1; power <= 4; ++power) moment[power] += std::pow(x, power);
    neighbours += x * last;
    last = x;
  }
  EXPECT_NEAR(moment[1] / kCount, 0.0, 0.01);
  EXPECT_NEAR(moment[2] / kCount, 1.0, 0.015);
  EXPECT_NEAR(moment[3] / kCount, 0.0, 0.03);
  EXPECT_NEAR(moment[4] / kCount, 3.0, 0.1);
  EXPECT_NEAR(neighbours / kCount, 0.0, 0.01);
}

TEST(RandomNormal, IsAFunctionOfTheElementAlone) {
  const double first = random_normal({1, 1}, 1000);
  random_normal({1, 1}, 3);
  EXPECT_EQ(random_normal({1, 1}, 1000), first);
}

TEST(StreamOf, DistinctInputsGiveDistinctStreams) {
  std::set<std::uint64_t> seen;
  std::size_t inputs = 0;
  for (const char* purpose : {"", "init", "epoch", "dropout"}) {
    for (int i = 0; i < 1000; ++i) {
      seen.insert(stream_of(purpose, "layers." + std::to_string(i)));
      seen.insert(stream_of(purpose, static_cast<std::uint64_t>(i)));
      inputs += 2;
    }
  }
  EXPECT_EQ(seen.size(), inputs);
  EXPECT_NE(stream_of("ab", "c"), stream_of("a", "bc"));
  EXPECT_NE(stream_of("x", 1, 0, 0), stream_of("x", 0, 1, 0));
  EXPECT_NE(stream_of("x", 0, 1, 0), stream_of("x", 0, 0, 1));
}

// Streams are written into checkpoints by what they generate, so the hash must never change.
TEST(StreamOf, IsStable) {
  EXPECT_EQ(stream_of("init", "model.embed_tokens.weight"),
            stream_of("init", std::string("model.embed_tokens.weight")));
  EXPECT_EQ(stream_of("init", "w"), 6315715562995841022u);
  EXPECT_EQ(stream_of("epoch", 3), 3098515905005168000u);
}

TEST(PermuteIndex, EachIndexComesOnce) {
  for (const std::uint64_t count : {1u, 2u, 3u, 4u, 5u, 7u, 16u, 17u, 100u, 1023u, 1024u, 1025u, 5000u}) {
    std::vector<bool> seen(count);
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint64_t j = permute_index(i, count, {42, 1});
      ASSERT_LT(j, count);
      ASSERT_FALSE(seen[j]) << count << " " << i;
      seen[j] = true;
    }
  }
}

TEST(PermuteIndex, LargeCountsStayInside) {
  const std::uint64_t count = std::uint64_t{1} << 62;
  std::set<std::uint64_t> seen;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    seen.insert(permute_index(count - 1 - i, count, {1, 1}));
    ASSERT_LT(permute_index(i, count - 12345, {1, 1}), count - 12345);
  }
  EXPECT_EQ(seen.size(), 1000u);
}

TEST(PermuteIndex, KeysGiveUnrelatedOrders) {
  constexpr std::uint64_t kCount = 10000;
  int equal = 0;
  int fixed = 0;
  int neighbours = 0;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    const std::uint64_t a = permute_index(i, kCount, {1, 1});
    equal += a == permute_index(i, kCount, {1, 2});
    fixed += a == i;
    neighbours += i > 0 && permute_index(i - 1, kCount, {1, 1}) + 1 == a;
  }
  EXPECT_LT(equal, 10);
  EXPECT_LT(fixed, 10);
  EXPECT_LT(neighbours, 10);
}

TEST(PermuteIndex, OutOfRangeIsABrokenInvariant) {
  EXPECT_THROW(permute_index(0, 0, {}), InternalError);
  EXPECT_THROW(permute_index(5, 5, {}), InternalError);
  EXPECT_THROW(permute_index(0, (std::uint64_t{1} << 62) + 1, {}), InternalError);
}

}  // namespace
}  // namespace trireme
