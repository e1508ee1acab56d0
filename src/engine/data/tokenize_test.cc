#include "engine/data/tokenize.h"

#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/fake_env.h"
#include "engine/data/sampler.h"

namespace trireme::data {
namespace {

TokenizeOptions options_of(const std::string& text_path, double fraction = 0.1) {
  TokenizeOptions options;
  options.text_path = text_path;
  options.out_directory = "out";
  options.validation_fraction = fraction;
  return options;
}

std::string wide(std::string_view text) {  // each byte as 16 bits
  std::string bytes;
  for (const char c : text) bytes += {c, '\0'};
  return bytes;
}

TEST(TokenizeText, SplitsAtTheEnd) {
  FakeEnv env;
  env.put_file("text", "0123456789abcdefghij");
  const DataInfo info = tokenize_text(env, options_of("text")).or_throw();
  EXPECT_EQ(env.content("out/train.bin"), wide("0123456789abcdefgh"));
  EXPECT_EQ(env.content("out/validation.bin"), wide("ij"));
  EXPECT_EQ(info.tokenizer, "byte");
  EXPECT_EQ(info.vocabulary, 256);
  EXPECT_EQ(info.train_tokens, 18);
  EXPECT_EQ(info.validation_tokens, 2);
  EXPECT_EQ(info.text_bytes, 20);
  EXPECT_EQ(info.text_xxh3.size(), 16u);
  EXPECT_EQ(load_data_info(env, "out").or_throw(), info);
  EXPECT_EQ(env.list_directory("out"), (std::vector<std::string>{"data.json", "train.bin", "validation.bin"}));
}

TEST(TokenizeText, PiecesMakeNoDifference) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += static_cast<char>(i * 7);
  std::vector<std::string> outcomes;
  for (const std::int64_t piece : {1, 3, 100, 899, 900, 5000}) {
    FakeEnv env;
    env.put_file("text", text);
    TokenizeOptions options = options_of("text");
    options.piece_bytes = piece;
    std::int64_t last = 0;
    options.progress = [&](std::int64_t done, std::int64_t total) {
      EXPECT_GT(done, last);
      EXPECT_EQ(total, 1000);
      last = done;
    };
    static_cast<void>(tokenize_text(env, options).or_throw());
    EXPECT_EQ(last, 1000);
    outcomes.push_back(env.content("out/train.bin") + "|" + env.content("out/validation.bin") + "|" +
                       env.content("out/data.json"));
  }
  for (const std::string& outcome : outcomes) EXPECT_TRUE(outcome == outcomes.front());
}

TEST(TokenizeText, TheHashIsXxh3) {
  FakeEnv env;
  env.put_file("text", "a");
  EXPECT_EQ(tokenize_text(env, options_of("text", 0)).or_throw().text_xxh3, "e6c632b61e964e1f");
}

TEST(TokenizeText, WithoutValidation) {
  FakeEnv env;
  env.put_file("text", "0123456789");
  static_cast<void>(tokenize_text(env, options_of("text", 0.5)).or_throw());
  EXPECT_TRUE(env.exists("out/validation.bin"));
  const DataInfo info = tokenize_text(env, options_of("text", 0.0)).or_throw();
  EXPECT_EQ(info.validation_tokens, 0);
  EXPECT_EQ(info.train_tokens, 10);
  EXPECT_FALSE(env.exists("out/validation.bin"));  // the earlier one is gone
}

TEST(TokenizeText, Refusals) {
  FakeEnv env;
  env.put_file("text", "0123456789");
  env.put_file("empty", "");
  for (const double fraction : {-0.1, 1.0, 1.5, std::nan("")}) {
    const auto result = tokenize_text(env, options_of("text", fraction));
    ASSERT_FALSE(result.ok()) << fraction;
    EXPECT_NE(result.failure().sentence().find("at least 0 and less than 1"), std::string::npos);
  }
  EXPECT_NE(tokenize_text(env, options_of("empty")).failure().sentence().find("the text is empty"), std::string::npos);
  EXPECT_NE(tokenize_text(env, options_of("text", 0.99)).failure().sentence().find("leaves nothing"),
            std::string::npos);
  TokenizeOptions options = options_of("text");
  options.tokenizer = "bpe";
  EXPECT_FALSE(tokenize_text(env, options).ok());
  EXPECT_THROW(static_cast<void>(tokenize_text(env, options_of("absent"))), Error);
  EXPECT_FALSE(env.exists("out"));
}

// Whatever operation fails, data.json is there only if the token files beside it are whole and its own.
TEST(TokenizeText, AFailureLeavesNoInfoBesidePartialFiles) {
  FakeEnv counting;
  counting.put_file("text", "0123456789");
  counting.fail_operation(0);
  static_cast<void>(tokenize_text(counting, options_of("text")).or_throw());
  const std::int64_t operations = counting.operations();
  for (std::int64_t n = 1; n <= operations; ++n) {
    FakeEnv env;
    env.put_file("text", "abcdefghijabcdefghij");
    static_cast<void>(tokenize_text(env, options_of("text")).or_throw());
    env.put_file("text", "0123456789");
    env.fail_from_operation(n);
    EXPECT_THROW(static_cast<void>(tokenize_text(env, options_of("text"))), Error);
    env.fail_operation(0);
    if (!env.exists("out/data.json")) continue;
    const DataInfo info = load_data_info(env, "out").or_throw();
    EXPECT_EQ(env.file_size("out/train.bin"), 2 * info.train_tokens) << n;
    EXPECT_EQ(env.file_size("out/validation.bin"), 2 * info.validation_tokens) << n;
  }
}

TEST(LoadDataInfo, EachMissingOrWrongMemberIsRefused) {
  FakeEnv env;
  const DataInfo info{"byte", 256, 2, 10, 2, 12, "0123456789abcdef"};
  for (const char* key : {"tokenizer", "vocabulary", "train_tokens", "validation_tokens", "text_bytes", "text_xxh3"}) {
    Json document = to_json(info);
    document[key] = Json::array();
    env.put_file("out/data.json", document.dump());
    const auto result = load_data_info(env, "out");
    ASSERT_FALSE(result.ok()) << key;
    EXPECT_NE(result.failure().sentence().find(key), std::string::npos);
  }
  Json document = to_json(info);
  document["train_tokens"] = -1;
  env.put_file("out/data.json", document.dump());
  EXPECT_FALSE(load_data_info(env, "out").ok());
  document = to_json(info);
  document["vocabulary"] = 0;
  env.put_file("out/data.json", document.dump());
  EXPECT_FALSE(load_data_info(env, "out").ok());
  env.put_file("out/data.json", "{");
  EXPECT_FALSE(load_data_info(env, "out").ok());
  EXPECT_THROW(static_cast<void>(load_data_info(env, "absent")), Error);
}

TEST(InspectTokenFile, CountsAndEntropy) {
  FakeEnv env;
  env.put_file("t.bin", wide("aabbccdd"));
  const auto tokenizer = make_tokenizer("byte").or_throw();
  const TokenFileSummary summary =
      inspect_token_file(env, "t.bin", {.vocabulary = 256, .tokenizer = tokenizer.get(), .first_tokens = 5}).or_throw();
  EXPECT_EQ(summary.tokens, 8);
  EXPECT_EQ(summary.token_bytes, 2);
  EXPECT_EQ(summary.distinct_ids, 4);
  EXPECT_EQ(summary.largest_id, 'd');
  EXPECT_EQ(summary.ids_beyond_vocabulary, 0);
  EXPECT_NEAR(summary.unigram_entropy, std::log(4.0), 1e-12);
  EXPECT_EQ(summary.first_tokens, (std::vector<std::int32_t>{'a', 'a', 'b', 'b', 'c'}));
  EXPECT_EQ(summary.first_text, "aabbc");
}

TEST(InspectTokenFile, IdsBeyondTheVocabularyAreCountedNotFatal) {
  FakeEnv env;
  env.put_file("t.bin", wide("aa") + std::string("\xff\xff", 2) + wide("a"));
  const TokenFileSummary summary = inspect_token_file(env, "t.bin", {.vocabulary = 128}).or_throw();
  EXPECT_EQ(summary.largest_id, 65535);
  EXPECT_EQ(summary.ids_beyond_vocabulary, 1);
  EXPECT_EQ(summary.distinct_ids, 2);
  EXPECT_EQ(summary.first_tokens.size(), 3u);
  EXPECT_EQ(summary.first_text, "");
}

TEST(InspectTokenFile, EmptyAndBrokenFiles) {
  FakeEnv env;
  env.put_file("empty.bin", "");
  env.put_file("odd.bin", "123");
  const TokenFileSummary summary = inspect_token_file(env, "empty.bin", {.vocabulary = 256}).or_throw();
  EXPECT_EQ(summary.tokens, 0);
  EXPECT_EQ(summary.largest_id, -1);
  EXPECT_EQ(summary.unigram_entropy, 0.0);
  EXPECT_FALSE(inspect_token_file(env, "odd.bin", {.vocabulary = 256}).ok());
}

// From text to batches and back to text.
TEST(TokenizeText, BatchesDecodeToTheText) {
  FakeEnv env;
  env.put_file("text", "the quick brown fox jumps over the lazy dog.");
  static_cast<void>(tokenize_text(env, options_of("text", 0)).or_throw());
  const Sampler sampler = Sampler::open(env, {"out/train.bin", 256, 10, 0, Order::kInOrder}).or_throw();
  std::vector<std::int32_t> inputs(20);
  std::vector<std::int32_t> targets(20);
  sampler.fill_batch(1, 2, inputs, targets);
  const auto tokenizer = make_tokenizer("byte").or_throw();
  EXPECT_EQ(tokenizer->decode(inputs), "brown fox jumps over");
  EXPECT_EQ(tokenizer->decode(targets), "rown fox jumps over ");
}

}  // namespace
}  // namespace trireme::data
