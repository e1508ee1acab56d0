#include "engine/data/token_file.h"

#include <gtest/gtest.h>

#include "base/fake_env.h"

namespace trireme::data {
namespace {

void put_tokens(FakeEnv& env, const std::string& path, const std::vector<std::int32_t>& tokens,
                std::int64_t vocabulary) {
  std::string bytes;
  append_tokens(tokens, vocabulary, bytes);
  env.put_file(path, bytes);
}

TEST(TokenFileTest, WidthFollowsFromTheVocabulary) {
  EXPECT_EQ(token_size(256), 2);
  EXPECT_EQ(token_size(65536), 2);
  EXPECT_EQ(token_size(65537), 4);
}

TEST(TokenFileTest, SixteenBitsLittleEndian) {
  FakeEnv env;
  env.put_file("t.bin", std::string("\x01\x00\x34\x12\xff\xff", 6));
  const TokenFile file = TokenFile::open(env, "t.bin", 65536).or_throw();
  EXPECT_EQ(file.tokens(), 3);
  EXPECT_EQ(file.path(), "t.bin");
  EXPECT_EQ(file.vocabulary(), 65536);
  std::vector<std::int32_t> tokens(3);
  file.read(0, tokens);
  EXPECT_EQ(tokens, (std::vector<std::int32_t>{1, 0x1234, 0xffff}));
}

TEST(TokenFileTest, ThirtyTwoBitsForLargeVocabularies) {
  FakeEnv env;
  const std::vector<std::int32_t> tokens{0, 65536, 127999};
  put_tokens(env, "t.bin", tokens, 128000);
  EXPECT_EQ(env.content("t.bin").size(), 12u);
  const TokenFile file = TokenFile::open(env, "t.bin", 128000).or_throw();
  std::vector<std::int32_t> read(2);
  file.read(1, read);
  EXPECT_EQ(read, (std::vector<std::int32_t>{65536, 127999}));
}

TEST(TokenFileTest, AToldWidthWinsOverTheVocabulary) {
  FakeEnv env;
  env.put_file("t.bin", std::string("\x05\0\0\0\x07\0\0\0", 8));
  const TokenFile wide = TokenFile::open(env, "t.bin", 256, 4).or_throw();
  EXPECT_EQ(wide.tokens(), 2);
  EXPECT_EQ(wide.token_bytes(), 4);
  std::vector<std::int32_t> tokens(2);
  wide.read(0, tokens);
  EXPECT_EQ(tokens, (std::vector<std::int32_t>{5, 7}));
  const TokenFile narrow = TokenFile::open(env, "t.bin", 100'000, 2).or_throw();
  EXPECT_EQ(narrow.tokens(), 4);
}

TEST(TokenFileTest, ATruncatedFileIsRefusedWithItsSize) {
  FakeEnv env;
  env.put_file("t.bin", std::string(1001, '\1'));
  const auto result = TokenFile::open(env, "t.bin", 256);
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.failure().sentence().find("t.bin: truncated: 1001 bytes is not a multiple of 2"), std::string::npos)
      << result.failure().sentence();
  env.put_file("u.bin", std::string(6, '\1'));
  EXPECT_FALSE(TokenFile::open(env, "u.bin", 70000).ok());
  EXPECT_TRUE(TokenFile::open(env, "u.bin", 256).ok());
}

TEST(TokenFileTest, AMissingFileIsAnError) {
  FakeEnv env;
  EXPECT_THROW(static_cast<void>(TokenFile::open(env, "absent.bin", 256)), Error);
}

TEST(TokenFileTest, AnEmptyFileHasNoTokens) {
  FakeEnv env;
  env.put_file("t.bin", "");
  EXPECT_EQ(TokenFile::open(env, "t.bin", 256).or_throw().tokens(), 0);
}

TEST(TokenFileTest, IdsBeyondTheVocabularyAreRefusedWhenRead) {
  FakeEnv env;
  put_tokens(env, "t.bin", {1, 2, 300, 4, 500}, 65536);
  const TokenFile file = TokenFile::open(env, "t.bin", 256).or_throw();
  std::vector<std::int32_t> tokens(2);
  EXPECT_NO_THROW(file.read(0, tokens));
  tokens.resize(4);
  try {
    file.read(1, tokens);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    EXPECT_EQ(std::string(error.what()),
              "data: read t.bin: token 300 at position 2 is not below the vocabulary (256); "
              "largest id in tokens 1 to 4: 500");
    EXPECT_NE(error.hint(), "");
  }
}

TEST(TokenFileTest, IdsAbove31BitsAreRefusedToo) {
  FakeEnv env;
  env.put_file("t.bin", std::string("\xff\xff\xff\xff", 4));
  const TokenFile file = TokenFile::open(env, "t.bin", 70000).or_throw();
  std::vector<std::int32_t> token(1);
  EXPECT_THROW(file.read(0, token), Error);
  std::vector<std::uint32_t> raw(1);
  file.read_raw(0, raw);
  EXPECT_EQ(raw[0], 0xffffffffu);
}

TEST(TokenFileTest, ReadingOutsideIsABrokenInvariant) {
  FakeEnv env;
  put_tokens(env, "t.bin", {1, 2, 3}, 256);
  const TokenFile file = TokenFile::open(env, "t.bin", 256).or_throw();
  std::vector<std::int32_t> tokens(2);
  EXPECT_THROW(file.read(2, tokens), InternalError);
  EXPECT_THROW(file.read(-1, tokens), InternalError);
  std::vector<std::uint32_t> raw(1);
  EXPECT_THROW(file.read_raw(3, raw), InternalError);
  std::vector<std::byte> bytes(3);
  EXPECT_THROW(file.read_bytes(0, bytes), InternalError);
}

TEST(AppendTokens, IdsOutsideTheVocabularyAreABrokenInvariant) {
  std::string bytes;
  const std::vector<std::int32_t> bad{256};
  EXPECT_THROW(append_tokens(bad, 256, bytes), InternalError);
}

}  // namespace
}  // namespace trireme::data
