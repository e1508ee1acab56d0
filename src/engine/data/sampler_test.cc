#include "engine/data/sampler.h"

#include <numeric>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "base/fake_env.h"

namespace trireme::data {
namespace {

constexpr std::int64_t kVocabulary = 1000;

// A text whose token at position p is p.
void put_counting_text(FakeEnv& env, std::int64_t tokens) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(tokens));
  std::iota(ids.begin(), ids.end(), 0);
  std::string bytes;
  append_tokens(ids, kVocabulary, bytes);
  env.put_file("t.bin", bytes);
}

SampleOrder order_of(std::int64_t tokens, std::int64_t sequence, std::uint64_t seed = 1,
                     Order order = Order::kShuffled) {
  return SampleOrder::make("text", tokens, sequence, seed, order).or_throw();
}

TEST(SampleOrderTest, EachWindowOnceAnEpoch) {
  for (const std::int64_t tokens : {17, 161, 1000, 4097}) {
    const SampleOrder order = order_of(tokens, 16);
    const std::int64_t samples = order.samples_per_epoch();
    EXPECT_EQ(samples, (tokens - 1) / 16);
    for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
      std::set<std::int64_t> windows;
      for (std::int64_t i = epoch * samples; i < (epoch + 1) * samples; ++i) {
        const Sample sample = order.sample_at(i);
        EXPECT_EQ(sample.index, i);
        EXPECT_EQ(sample.epoch, epoch);
        EXPECT_EQ(sample.first_token, sample.window * 16);
        EXPECT_LE(sample.first_token + 17, tokens);
        windows.insert(sample.window);
      }
      EXPECT_EQ(static_cast<std::int64_t>(windows.size()), samples);
    }
  }
}

TEST(SampleOrderTest, EpochsAndSeedsGiveOtherOrders) {
  const SampleOrder order = order_of(16001, 16);
  const SampleOrder other_seed = order_of(16001, 16, 2);
  int equal_epochs = 0;
  int equal_seeds = 0;
  for (std::int64_t i = 0; i < 1000; ++i) {
    equal_epochs += order.sample_at(i).window == order.sample_at(i + 1000).window;
    equal_seeds += order.sample_at(i).window == other_seed.sample_at(i).window;
  }
  EXPECT_LT(equal_epochs, 20);
  EXPECT_LT(equal_seeds, 20);
}

TEST(SampleOrderTest, AnyPositionIsFoundWithoutTheOnesBefore) {
  const SampleOrder order = order_of(5000, 7);
  std::vector<Sample> sequential;
  for (std::int64_t i = 0; i < 2000; ++i) sequential.push_back(order.sample_at(i));
  const SampleOrder again = order_of(5000, 7);
  for (std::int64_t i = 1999; i >= 0; --i) {
    EXPECT_EQ(again.sample_at(i), sequential[static_cast<std::size_t>(i)]);
  }
}

TEST(SampleOrderTest, ValidationGoesInOrder) {
  const SampleOrder order = order_of(101, 10, 7, Order::kInOrder);
  for (std::int64_t i = 0; i < 25; ++i) {
    EXPECT_EQ(order.sample_at(i), (Sample{i, i / 10, i % 10, i % 10 * 10}));
  }
}

TEST(SampleOrderTest, ATextOfExactlyOneSample) {
  const SampleOrder order = order_of(257, 256);
  EXPECT_EQ(order.samples_per_epoch(), 1);
  EXPECT_EQ(order.sample_at(5), (Sample{5, 5, 0, 0}));
}

TEST(SampleOrderTest, ATooShortTextIsRefusedWithNumbers) {
  const auto result = SampleOrder::make("train.bin", 100, 256, 1, Order::kShuffled);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.failure().sentence(),
            "train.bin: text has 100 tokens, one sample needs 257; a longer text, or a sequence of at most 99");
  EXPECT_FALSE(SampleOrder::make("t", 256, 256, 1, Order::kShuffled).ok());
  EXPECT_FALSE(SampleOrder::make("t", 0, 1, 1, Order::kInOrder).ok());
  EXPECT_THROW(static_cast<void>(SampleOrder::make("t", 10, 0, 1, Order::kInOrder)), InternalError);
}

TEST(SampleOrderTest, ANegativeIndexIsABrokenInvariant) {
  EXPECT_THROW(order_of(100, 10).sample_at(-1), InternalError);
}

TEST(SamplerTest, TargetsAreTheNextTokens) {
  FakeEnv env;
  put_counting_text(env, 100);
  const Sampler sampler = Sampler::open(env, {"t.bin", kVocabulary, 8, 3, Order::kShuffled}).or_throw();
  EXPECT_EQ(sampler.samples_per_epoch(), 12);
  EXPECT_EQ(sampler.sequence(), 8);
  EXPECT_EQ(sampler.file().tokens(), 100);
  std::vector<std::int32_t> inputs(5 * 8);
  std::vector<std::int32_t> targets(5 * 8);
  sampler.fill_batch(10, 5, inputs, targets);  // across the end of an epoch
  for (std::size_t i = 0; i < 5; ++i) {
    const std::int64_t first = sampler.sample_at(10 + static_cast<std::int64_t>(i)).first_token;
    for (std::size_t t = 0; t < 8; ++t) {
      EXPECT_EQ(inputs[i * 8 + t], first + static_cast<std::int64_t>(t));
      EXPECT_EQ(targets[i * 8 + t], first + static_cast<std::int64_t>(t) + 1);
    }
  }
}

// The same samples whichever way a global batch is cut over ranks and micro-batches.
TEST(SamplerTest, ABatchInPartsIsTheBatch) {
  FakeEnv env;
  put_counting_text(env, 500);
  const Sampler sampler = Sampler::open(env, {"t.bin", kVocabulary, 5, 3, Order::kShuffled}).or_throw();
  std::vector<std::int32_t> inputs(12 * 5);
  std::vector<std::int32_t> targets(12 * 5);
  sampler.fill_batch(24, 12, inputs, targets);
  for (const std::int64_t part : {1, 2, 3, 4, 6}) {
    std::vector<std::int32_t> all_inputs;
    for (std::int64_t i = 0; i < 12; i += part) {
      std::vector<std::int32_t> some(static_cast<std::size_t>(part * 5));
      std::vector<std::int32_t> next(static_cast<std::size_t>(part * 5));
      sampler.fill_batch(24 + i, part, some, next);
      all_inputs.insert(all_inputs.end(), some.begin(), some.end());
    }
    EXPECT_EQ(all_inputs, inputs);
  }
}

TEST(SamplerTest, RefusalsOfFileAndLengthComeThrough) {
  FakeEnv env;
  put_counting_text(env, 100);
  env.put_file("odd.bin", "123");
  EXPECT_FALSE(Sampler::open(env, {"odd.bin", kVocabulary, 8, 3, Order::kShuffled}).ok());
  EXPECT_FALSE(Sampler::open(env, {"t.bin", kVocabulary, 100, 3, Order::kShuffled}).ok());
  const Sampler small = Sampler::open(env, {"t.bin", 50, 8, 3, Order::kInOrder}).or_throw();
  std::vector<std::int32_t> inputs(8);
  std::vector<std::int32_t> targets(8);
  EXPECT_NO_THROW(small.fill_batch(5, 1, inputs, targets));
  EXPECT_THROW(small.fill_batch(6, 1, inputs, targets), Error);
}

TEST(SamplerTest, WrongSizesAreABrokenInvariant) {
  FakeEnv env;
  put_counting_text(env, 100);
  const Sampler sampler = Sampler::open(env, {"t.bin", kVocabulary, 8, 3, Order::kShuffled}).or_throw();
  std::vector<std::int32_t> right(16);
  std::vector<std::int32_t> wrong(15);
  EXPECT_THROW(sampler.fill_batch(0, 2, wrong, right), InternalError);
  EXPECT_THROW(sampler.fill_batch(0, 2, right, wrong), InternalError);
}

}  // namespace
}  // namespace trireme::data
