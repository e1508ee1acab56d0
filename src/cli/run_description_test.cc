#include "cli/run_description.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace trireme::cli {
namespace {

using Settings = std::vector<std::pair<std::string, std::string>>;

RunDescription description(const Settings& settings) {
  Settings all{{"model.config", "model"}, {"data.train", "tokens"}};
  all.insert(all.end(), settings.begin(), settings.end());
  return {.config = train::make_run_config(Json::object({}), all).value(),
          .model = model::to_hugging_face({.layers = 2,
                                           .hidden = 8,
                                           .heads = 2,
                                           .kv_heads = 1,
                                           .head_dim = 4,
                                           .ffn = 16,
                                           .vocabulary = 300,
                                           .max_positions = 64,
                                           .norm_epsilon = 0.1 + 0.2}),
          .cluster = std::nullopt};
}

TEST(RunDescription, WorkersGetAllOfIt) {
  const RunDescription one = description({{"data.train", "a;b%3B \"\xc3\xa9\"\n/tokens"},
                                          {"optimizer.learning_rate", "0.30000000000000004"},
                                          {"layout.dp", "2"},
                                          {"layout.zero", "2"},
                                          {"layout.reduce", "microbatch"},
                                          {"checkpoint.mtbf", "12345.678s"},
                                          {"out.trace", "t.json"},
                                          {"supervise.hosts", "a:2,b:2:spare"}});
  const std::string word = to_word(one).value();
  for (const char c : word) EXPECT_TRUE(c > ' ' && c <= '~' && c != ';') << word;
  const RunDescription other = description_of(word, {});
  EXPECT_EQ(train::to_toml(other.config), train::to_toml(one.config));
  EXPECT_EQ(*other.model, *one.model);
}

TEST(RunDescription, WhatAStartIsWinsOverIt) {
  const std::string word = to_word(description({{"layout.dp", "4"}, {"out.overwrite", "true"}})).value();
  const RunDescription start = description_of(word, {{"layout.dp", "2"}, {"out.overwrite", "false"}});
  EXPECT_EQ(start.config.layout.dp, 2);
  EXPECT_FALSE(start.config.overwrite);
}

TEST(RunDescription, RefusesWhatNoVariableHolds) {
  const Result<std::string> word = to_word(description({{"data.train", std::string(130'000, 'x')}}));
  ASSERT_FALSE(word.ok());
  EXPECT_NE(word.failure().sentence().find("workers are handed at most 120000"), std::string::npos);
}

TEST(RunDescription, RefusesWhatIsNone) {
  for (const char* word : {"", "x", "%", "%G0", "%7B", "[]", "{}", R"({"run":{}})", R"({"run":3,"model":{}})",
                           R"({"run":{},"model":{}})"}) {
    EXPECT_THROW((void)description_of(word, {}), Error) << word;
  }
}

}  // namespace
}  // namespace trireme::cli
