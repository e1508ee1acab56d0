#include "engine/data/token_format.h"

#include <cstring>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/fake_env.h"
#include "engine/data/token_file.h"
#include "engine/data/tokenize.h"

namespace trireme::data {
namespace {

using namespace std::string_literals;
using testing::HasSubstr;

template <class Token>
std::string bytes_of(const std::vector<Token>& tokens) {
  std::string bytes(tokens.size() * sizeof(Token), '\0');
  std::memcpy(bytes.data(), tokens.data(), bytes.size());
  return bytes;
}

std::vector<std::int32_t> counting(std::int64_t count, std::int64_t vocabulary) {
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<std::int32_t>(1 + i % (vocabulary - 1)));
  return tokens;
}

std::string llmc_file(std::int32_t magic, const std::string& tokens) {
  std::vector<std::int32_t> header(256, 0);
  header[0] = magic;
  header[1] = 1;
  header[2] = static_cast<std::int32_t>(tokens.size() / 2);
  return bytes_of(header) + tokens;
}

std::string refusal_of_head(const std::string& content, std::int64_t vocabulary = 50257) {
  FakeEnv env;
  env.put_file("t.bin", content);
  const Result<TokenFile> file = TokenFile::open(env, "t.bin", vocabulary);
  return file.ok() ? "" : file.failure().sentence();
}

TEST(TokenFormat, FilesOfOtherFormatsAreNamed) {
  const std::string tokens = bytes_of(std::vector<std::uint16_t>(500, 300));
  EXPECT_EQ(
      refusal_of_head(llmc_file(20240520, tokens)),
      "t.bin: begins with llm.c's header (256 int32, of which the first is 20240520), before 500 tokens of 2 bytes; "
      "token files have none; tail -c +1025 t.bin > tokens.bin takes it off");
  EXPECT_THAT(refusal_of_head(llmc_file(20240801, tokens), 128256), HasSubstr("before 250 tokens of 4 bytes"));
  EXPECT_THAT(refusal_of_head("\x93NUMPY\1\0v\0{'descr': '<u2'"s), HasSubstr(".astype('<u2').tofile("));
  EXPECT_THAT(refusal_of_head("MMIDIDX\0\0\1\0\0\0\0\0\0\0\x08"s),
              HasSubstr("the tokens are in the .bin file beside it"));
  EXPECT_THAT(refusal_of_head("version https://git-lfs.github.com/spec/v1\noid"), HasSubstr("git lfs pull"));
  EXPECT_THAT(refusal_of_head("It was the best of times, it was the worst of times."),
              HasSubstr("is plain text, not a token file; trireme data tokenize"));
  EXPECT_THAT(refusal_of_head("{\"text\": \"one\", \"tokens\": [1, 2, 3]}"), HasSubstr("is JSON text"));
  EXPECT_THAT(refusal_of_head("PAR1" + tokens), HasSubstr("is a Parquet file"));
}

TEST(TokenFormat, TokensWhoseFirstOneIsAMagicNumberAreTokens) {
  std::vector<std::uint16_t> tokens(1000, 7);
  tokens[0] = 0xD888;  // with the next one: 20240520
  tokens[1] = 0x0134;
  EXPECT_EQ(refusal_of_head(bytes_of(tokens), 65536), "");
  tokens[0] = 0x8b1f;  // gzip
  EXPECT_EQ(refusal_of_head(bytes_of(tokens), 65536), "");
}

TokenScan scan_of(FakeEnv& env, const std::string& content, std::int64_t vocabulary, std::int64_t width = 0) {
  env.put_file("t.bin", content);
  return scan_tokens(TokenFile::open(env, "t.bin", vocabulary, width).or_throw());
}
std::string check_of(const std::string& content, std::int64_t vocabulary, std::int64_t width = 0) {
  FakeEnv env;
  env.put_file("t.bin", content);
  const TokenFile file = TokenFile::open(env, "t.bin", vocabulary, width).or_throw();
  const Status status = check_tokens(file, scan_tokens(file), "data.train", width != 0);
  return status.ok() ? "" : status.failure().sentence();
}

TEST(TokenScan, SeesEveryToken) {
  FakeEnv env;
  for (const std::int64_t width : {2, 4}) {
    for (const std::int64_t count : {0, 1, 31, 32, 33, 100, 70'000, 600'000}) {
      std::vector<std::int32_t> tokens = counting(count, 1000);
      std::int64_t zeros = 0;
      for (std::int64_t i = 0; i < count; i += 7, ++zeros) tokens[static_cast<std::size_t>(i)] = 0;
      std::string bytes;
      append_tokens(tokens, width == 2 ? 1000 : 100'000, bytes);
      const TokenScan scan = scan_of(env, bytes, 1000, width);
      EXPECT_EQ(scan.tokens, count);
      EXPECT_EQ(scan.zeros[0] + scan.zeros[1] + scan.zeros[2] + scan.zeros[3], zeros);
      EXPECT_EQ(scan.largest, count == 0 ? 0U : static_cast<std::uint32_t>(*std::ranges::max_element(tokens)));
      EXPECT_EQ(scan.beyond, 0);
      for (const std::int64_t at : {std::int64_t{0}, count / 2, count - 1}) {
        if (count == 0) continue;
        std::string bad = bytes;
        const std::uint32_t value = width == 2 ? 60'000 : 4'000'000'000;
        std::memcpy(bad.data() + at * width, &value, static_cast<std::size_t>(width));
        const TokenScan found = scan_of(env, bad, 1000, width);
        EXPECT_EQ(found.first_beyond, at) << count;
        EXPECT_EQ(found.first_value, value);
        EXPECT_EQ(found.beyond, 1);
        EXPECT_EQ(found.largest, value);
      }
    }
  }
}

TEST(TokenScan, TellsItsProgress) {
  FakeEnv env;
  env.put_file("t.bin", bytes_of(std::vector<std::uint16_t>(1'200'000, 5)));
  std::vector<std::int64_t> told;
  scan_tokens(TokenFile::open(env, "t.bin", 256).or_throw(), [&](Bytes done, Bytes total) {
    told.push_back(done.count);
    EXPECT_EQ(total.count, 2'400'000);
  });
  EXPECT_EQ(told, (std::vector<std::int64_t>{1 << 20, 2 << 20, 2'400'000}));
}

TEST(CheckTokens, OneBeyondTheVocabularyIsNamed) {
  std::vector<std::uint16_t> tokens(100, 7);
  EXPECT_EQ(check_of(bytes_of(tokens), 50257), "");
  tokens[41] = 50257;
  tokens[77] = 60'000;
  EXPECT_THAT(check_of(bytes_of(tokens), 50257),
              HasSubstr("data.train = t.bin: token 50257 at position 41 is not below the vocabulary (50257); 2 of 100 "
                        "tokens are not, the largest is 60000; "));
  std::vector<std::int32_t> masked = counting(100, 100'000);
  masked[3] = -100;
  EXPECT_THAT(check_of(bytes_of(masked), 100'000), HasSubstr("token 4294967196 (or -100) at position 3"));
}

TEST(CheckTokens, NumbersOfTwiceTheWidthAreTold) {
  const std::vector<std::int32_t> ints = counting(3201, 32'000);
  EXPECT_EQ(
      check_of(bytes_of(ints), 32'000),
      "data.train = t.bin: read as 6402 tokens of 2 bytes, every second one is 0: it holds 3201 tokens of 4 bytes; "
      "data.token_bytes = 4 (--token-bytes 4) reads them so, 2 takes the file at its word");
  EXPECT_EQ(check_of(bytes_of(ints), 32'000, 4), "");
  EXPECT_EQ(check_of(bytes_of(ints), 32'000, 2), "");  // as it is told
  const std::vector<std::int64_t> longs(ints.begin(), ints.end());
  EXPECT_THAT(check_of(bytes_of(longs), 32'000),
              HasSubstr("all but every fourth are 0: it holds 3201 tokens of 8 bytes"));
  EXPECT_THAT(check_of(bytes_of(longs), 100'000), HasSubstr("every second one is 0: it holds 3201 tokens of 8 bytes"));
}

TEST(CheckTokens, ManyZerosAreNoWidth) {
  std::vector<std::uint16_t> padded(1000, 0);
  EXPECT_EQ(check_of(bytes_of(padded), 256), "");
  for (std::size_t i = 0; i < 60; ++i) padded[i] = 9;  // a short text, then padding
  EXPECT_EQ(check_of(bytes_of(padded), 256), "");
  std::vector<std::uint16_t> half(1000, 9);
  for (std::size_t i = 1; i < half.size(); i += 2) half[i] = i % 40 == 1 ? 3 : 0;
  EXPECT_EQ(check_of(bytes_of(half), 256), "");
  EXPECT_EQ(check_of(bytes_of(std::vector<std::int32_t>(8, 5)), 256), "");  // too few to tell
}

TEST(FormatBeside, DataJsonSaysVocabularyAndWidth) {
  FakeEnv env;
  EXPECT_EQ(format_beside(env, "d/train.bin")->by, "");
  DataInfo info{"byte", 256, 4, 10, 2, 12, "0123456789abcdef"};
  env.put_file("d/data.json", to_json(info).dump());
  const ToldFormat told = format_beside(env, "d/train.bin").or_throw();
  EXPECT_EQ(told.by, "d/data.json");
  EXPECT_EQ(told.token_bytes, 4);
  EXPECT_EQ(told.vocabulary, 256);
  EXPECT_EQ(told.tokenizer, "byte");
  EXPECT_EQ(agreed_token_bytes(0, told, "data.token_bytes").value(), 4);
  EXPECT_EQ(agreed_token_bytes(4, told, "data.token_bytes").value(), 4);
  EXPECT_EQ(agreed_token_bytes(2, told, "data.token_bytes").failure().sentence(),
            "data.token_bytes = 2: d/data.json says 4; nearest legal: 4");
  EXPECT_EQ(agreed_token_bytes(2, ToldFormat{}, "data.token_bytes").value(), 2);
  EXPECT_EQ(agreed_token_bytes(0, ToldFormat{}, "data.token_bytes").value(), 0);
}

TEST(FormatBeside, AWidthThatTokenFilesDoNotHaveIsRefused) {
  FakeEnv env;
  env.put_file("d/data.json", to_json(DataInfo{"byte", 256, 3, 10, 2, 12, ""}).dump());
  EXPECT_THAT(format_beside(env, "d/train.bin").failure().sentence(), HasSubstr("\"token_bytes\" is 3"));
}

TEST(FormatBeside, MegatronsIndexSaysTheWidth) {
  const auto index = [](char type) { return "MMIDIDX\0\0\1\0\0\0\0\0\0\0"s + type + std::string(16, '\0'); };
  FakeEnv env;
  const std::pair<char, std::int64_t> read[] = {{'\x08', 2}, {'\x03', 2}, {'\x04', 4}};
  for (const auto& [type, width] : read) {
    env.put_file("m/x.idx", index(type));
    EXPECT_EQ(format_beside(env, "m/x.bin")->token_bytes, width);
    EXPECT_EQ(format_beside(env, "m/x.bin")->by, "m/x.idx");
  }
  EXPECT_EQ(format_beside(env, "m/y.bin")->by, "");
  for (const char type : {'\x05', '\x01', '\x07', '\x63'}) {
    env.put_file("m/x.idx", index(type));
    EXPECT_THAT(format_beside(env, "m/x.bin").failure().sentence(), HasSubstr("Megatron's type"));
  }
  env.put_file("m/x.idx", "something else");
  EXPECT_EQ(format_beside(env, "m/x.bin")->by, "");
}

}  // namespace
}  // namespace trireme::data
