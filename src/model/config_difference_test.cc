#include "model/config_difference.h"

#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/test_configs.h"

namespace trireme::model {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

using Change = std::function<void(Config&)>;

std::vector<ConfigDifference> after(const Config& config, const Change& change) {
  Config other = config;
  change(other);
  return differences_of(config, other);
}

TEST(ConfigDifference, EachFieldOfTheFunctionIsToldByName) {
  const struct {
    Change change;
    ConfigDifference told;
  } cases[] = {
      {[](Config& c) { c.rope_theta = 500'000; }, {"rope_theta", "10000.0", "5e+05"}},
      {[](Config& c) { c.norm_epsilon = 1e-6; }, {"rms_norm_eps", "1e-05", "1e-06"}},
      {[](Config& c) { c.activation = Activation::kRelu; }, {"hidden_act", "\"silu\"", "\"relu\""}},
      {[](Config& c) { c.layers = 3; }, {"num_hidden_layers", "2", "3"}},
      {[](Config& c) { c.heads = 8, c.head_dim = 4; }, {"num_attention_heads", "4", "8"}},
      {[](Config& c) { c.kv_heads = 4; }, {"num_key_value_heads", "2", "4"}},
      {[](Config& c) { c.ffn = 64; }, {"intermediate_size", "32", "64"}},
      {[](Config& c) { c.vocabulary = 54; }, {"vocab_size", "53", "54"}},
      {[](Config& c) { c.tied_embeddings = true; }, {"tie_word_embeddings", "false", "true"}},
      {[](Config& c) { c.mlp_bias = true; }, {"mlp_bias", "false", "true"}},
      {[](Config& c) { c.attention_input_bias = c.attention_output_bias = true; }, {"attention_bias", "false", "true"}},
      {[](Config& c) { c.rope_scaling = {.kind = RopeScalingKind::kLinear, .factor = 2}; },
       {"rope_scaling", "null", R"({"factor":2.0,"rope_type":"linear"})"}},
  };
  for (const auto& one : cases) {
    EXPECT_THAT(after(small_llama(), one.change), ElementsAre(one.told)) << one.told.field;
  }
  EXPECT_THAT(after(small_gpt2(), [](Config& c) { c.norm_epsilon = 1e-6; }),
              ElementsAre(ConfigDifference{"layer_norm_epsilon", "1e-05", "1e-06"}));
  EXPECT_THAT(after(small_gpt2(), [](Config& c) { c.max_positions = 64; }),
              ElementsAre(ConfigDifference{"n_positions", "32", "64"}));
}

TEST(ConfigDifference, AnotherFamilyIsOneDifference) {
  EXPECT_THAT(differences_of(small_llama(), small_gpt2()),
              ElementsAre(ConfigDifference{"model_type", "llama", "gpt2"}));
}

TEST(ConfigDifference, WhatChangesNoOutputIsPassedOver) {
  EXPECT_THAT(differences_of(small_llama(), small_llama()), IsEmpty());
  EXPECT_THAT(after(small_llama(),
                    [](Config& c) {
                      c.attention_dropout = 0.1;
                      c.initializer_range = 0.01;
                      c.bos_token = 1;
                      c.eos_token = 2;
                      c.max_positions = 128;
                    }),
              IsEmpty());
  EXPECT_THAT(after(small_gpt2(),
                    [](Config& c) {
                      c.embedding_dropout = c.residual_dropout = c.attention_dropout = 0.1;
                      c.eos_token = 5;
                    }),
              IsEmpty());
}

}  // namespace
}  // namespace trireme::model
