#include "engine/data/tokenizer.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace trireme::data {
namespace {

TEST(ByteTokenizerTest, EachByteIsItsOwnToken) {
  const auto tokenizer = make_tokenizer("byte").or_throw();
  EXPECT_EQ(tokenizer->name(), "byte");
  EXPECT_EQ(tokenizer->vocabulary_size(), 256);
  EXPECT_EQ(tokenizer->encode("Aü"), (std::vector<std::int32_t>{65, 0xC3, 0xBC}));
  EXPECT_TRUE(tokenizer->encode("").empty());
  std::string all;
  for (int c = 0; c < 256; ++c) all += static_cast<char>(c);
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(all)), all);
}

TEST(ByteTokenizerTest, IdsOutsideTheVocabularyAreABrokenInvariant) {
  const auto tokenizer = make_tokenizer("byte").or_throw();
  const std::vector<std::int32_t> too_large{256};
  const std::vector<std::int32_t> negative{-1};
  EXPECT_THROW(tokenizer->decode(too_large), InternalError);
  EXPECT_THROW(tokenizer->decode(negative), InternalError);
}

TEST(MakeTokenizer, UnknownNamesAreRefused) {
  const auto result = make_tokenizer("bpe");
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.failure().sentence(), "data.tokenizer = bpe: is no tokenizer of this program; nearest legal: byte");
}

}  // namespace
}  // namespace trireme::data
