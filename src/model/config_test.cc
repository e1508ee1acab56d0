#include "model/config.h"

#include <string>

#include <gtest/gtest.h>

#include "base/fake_env.h"
#include "model/parameters.h"

namespace trireme::model {
namespace {

Config parsed(std::string_view text) {
  return parse_config(parse_json(text, "config.json").or_throw(), "config.json").or_throw();
}

std::string example(const std::string& name) { return std::string(TRIREME_SOURCE_DIR) + "/examples/models/" + name; }

constexpr std::string_view kSmallestGpt2 = R"({"model_type": "gpt2", "n_embd": 48, "n_layer": 2, "vocab_size": 100})";
constexpr std::string_view kSmallestLlama =
    R"({"model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 4, "vocab_size": 100})";

TEST(ConfigTest, AbsentFieldsOfGpt2TakeHuggingFacesDefaults) {
  const Config config = parsed(kSmallestGpt2);
  EXPECT_EQ(config.family, Family::kGpt2);
  EXPECT_EQ(config.layers, 2);
  EXPECT_EQ(config.hidden, 48);
  EXPECT_EQ(config.heads, 12);
  EXPECT_EQ(config.kv_heads, 12);
  EXPECT_EQ(config.head_dim, 4);
  EXPECT_EQ(config.ffn, 192);
  EXPECT_EQ(config.vocabulary, 100);
  EXPECT_EQ(config.max_positions, 1024);
  EXPECT_EQ(config.norm, NormKind::kLayerNorm);
  EXPECT_EQ(config.norm_epsilon, 1e-5);
  EXPECT_EQ(config.activation, Activation::kGeluTanh);
  EXPECT_FALSE(config.gated_mlp);
  EXPECT_TRUE(config.attention_input_bias);
  EXPECT_TRUE(config.attention_output_bias);
  EXPECT_TRUE(config.mlp_bias);
  EXPECT_TRUE(config.tied_embeddings);
  EXPECT_EQ(config.position, PositionKind::kLearned);
  EXPECT_EQ(config.embedding_dropout, 0.1);
  EXPECT_EQ(config.attention_dropout, 0.1);
  EXPECT_EQ(config.residual_dropout, 0.1);
  EXPECT_EQ(config.initializer_range, 0.02);
}

TEST(ConfigTest, AbsentFieldsOfLlamaTakeHuggingFacesDefaults) {
  const Config config = parsed(kSmallestLlama);
  EXPECT_EQ(config.family, Family::kLlama);
  EXPECT_EQ(config.layers, 2);
  EXPECT_EQ(config.hidden, 64);
  EXPECT_EQ(config.heads, 4);
  EXPECT_EQ(config.kv_heads, 4);
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.ffn, 96);
  EXPECT_EQ(config.max_positions, 2048);
  EXPECT_EQ(config.norm, NormKind::kRmsNorm);
  EXPECT_EQ(config.norm_epsilon, 1e-6);
  EXPECT_EQ(config.activation, Activation::kSilu);
  EXPECT_TRUE(config.gated_mlp);
  EXPECT_FALSE(config.attention_input_bias);
  EXPECT_FALSE(config.attention_output_bias);
  EXPECT_FALSE(config.mlp_bias);
  EXPECT_FALSE(config.tied_embeddings);
  EXPECT_EQ(config.position, PositionKind::kRotary);
  EXPECT_EQ(config.rope_theta, 10000.0);
  EXPECT_EQ(config.rope_scaling, RopeScaling{});
  EXPECT_EQ(config.embedding_dropout, 0.0);
  EXPECT_EQ(config.attention_dropout, 0.0);
  EXPECT_EQ(config.residual_dropout, 0.0);
  EXPECT_EQ(config.initializer_range, 0.02);
  EXPECT_EQ(config.bos_token, 1);
  EXPECT_EQ(config.eos_token, 2);
}

TEST(ConfigTest, EveryFieldOfLlamaIsRead) {
  const Config config = parsed(R"({
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3,
    "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 10, "vocab_size": 100,
    "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 500000, "hidden_act": "gelu_pytorch_tanh",
    "attention_bias": true, "mlp_bias": true, "attention_dropout": 0.25, "initializer_range": 0.01,
    "tie_word_embeddings": true, "bos_token_id": 7, "eos_token_id": [8, 9], "pretraining_tp": 1,
    "rope_scaling": {"type": "linear", "rope_type": "linear", "factor": 2.0}})");
  EXPECT_EQ(config.kv_heads, 2);
  EXPECT_EQ(config.head_dim, 10);
  EXPECT_EQ(config.query_width(), 80);
  EXPECT_EQ(config.kv_width(), 20);
  EXPECT_EQ(config.max_positions, 512);
  EXPECT_EQ(config.norm_epsilon, 1e-5);
  EXPECT_EQ(config.rope_theta, 500000.0);
  EXPECT_EQ(config.activation, Activation::kGeluTanh);
  EXPECT_TRUE(config.attention_input_bias);
  EXPECT_TRUE(config.attention_output_bias);
  EXPECT_TRUE(config.mlp_bias);
  EXPECT_EQ(config.attention_dropout, 0.25);
  EXPECT_EQ(config.initializer_range, 0.01);
  EXPECT_TRUE(config.tied_embeddings);
  EXPECT_EQ(config.bos_token, 7);
  EXPECT_EQ(config.eos_token, 8);
  EXPECT_EQ(config.rope_scaling.kind, RopeScalingKind::kLinear);
  EXPECT_EQ(config.rope_scaling.factor, 2.0);
}

TEST(ConfigTest, EveryFieldOfGpt2IsRead) {
  const Config config = parsed(R"({
    "model_type": "gpt2", "n_embd": 60, "n_layer": 2, "n_head": 5, "n_inner": 70, "n_positions": 64, "n_ctx": 64,
    "vocab_size": 60000, "layer_norm_epsilon": 1e-6, "activation_function": "relu", "embd_pdrop": 0, "attn_pdrop": 0.2,
    "resid_pdrop": 0.3, "initializer_range": 0.5, "tie_word_embeddings": false, "bos_token_id": null})");
  EXPECT_EQ(config.heads, 5);
  EXPECT_EQ(config.head_dim, 12);
  EXPECT_EQ(config.ffn, 70);
  EXPECT_EQ(config.max_positions, 64);
  EXPECT_EQ(config.norm_epsilon, 1e-6);
  EXPECT_EQ(config.activation, Activation::kRelu);
  EXPECT_EQ(config.embedding_dropout, 0.0);
  EXPECT_EQ(config.attention_dropout, 0.2);
  EXPECT_EQ(config.residual_dropout, 0.3);
  EXPECT_EQ(config.initializer_range, 0.5);
  EXPECT_FALSE(config.tied_embeddings);
  EXPECT_EQ(config.bos_token, -1);
  EXPECT_EQ(config.eos_token, 50256);
}

TEST(ConfigTest, TokensOutsideTheVocabularyAreNone) {
  EXPECT_EQ(parsed(kSmallestGpt2).eos_token, -1);
  Json document = parse_json(kSmallestLlama, "c").or_throw();
  document["bos_token_id"] = 100;
  document["eos_token_id"] = Json::array();
  document["eos_token_id"].push_back(99);
  const Config config = parse_config(document, "c").or_throw();
  EXPECT_EQ(config.bos_token, -1);
  EXPECT_EQ(config.eos_token, 99);
}

TEST(ConfigTest, BothGenerationsOfRotaryFieldsGiveTheSameModel) {
  const auto with = [](std::string_view members) {
    return parsed(std::string(kSmallestLlama.substr(0, kSmallestLlama.size() - 1)) + ", " + std::string(members) + "}");
  };
  const Config old_form = with(R"("rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", "factor": 32.0,
    "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 1024})");
  const Config new_form = with(R"("rope_parameters": {"rope_type": "llama3", "factor": 32.0, "rope_theta": 500000.0,
    "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 1024})");
  EXPECT_EQ(old_form, new_form);
  EXPECT_EQ(old_form.rope_scaling.kind, RopeScalingKind::kLlama3);
  EXPECT_EQ(old_form.rope_scaling.original_positions, 1024);
  EXPECT_EQ(old_form.rope_theta, 500000.0);

  const Config plain = with(R"("rope_parameters": {"rope_type": "default", "rope_theta": 20000.0})");
  EXPECT_EQ(plain.rope_scaling.kind, RopeScalingKind::kNone);
  EXPECT_EQ(plain.rope_theta, 20000.0);
  EXPECT_EQ(with(R"("rope_theta": 20000, "rope_scaling": null)"), plain);
  EXPECT_EQ(with(R"("rope_theta": 20000, "rope_scaling": {"type": "default"})"), plain);
  EXPECT_EQ(with(R"("rope_theta": 20000, "rope_parameters": {"rope_theta": 20000, "partial_rotary_factor": 1.0})"),
            plain);
}

TEST(ConfigTest, FieldsThatDoNotChangeTrainingArePassedOver) {
  Json document = parse_json(kSmallestLlama, "c").or_throw();
  const Config before = parse_config(document, "c").or_throw();
  document["use_cache"] = true;
  document["torch_dtype"] = "bfloat16";
  document["dtype"] = "bfloat16";
  document["architectures"] = Json::array();
  document["transformers_version"] = "5.0.0";
  document["quantization_config"] = nullptr;
  document["sliding_window"] = nullptr;
  document["pruned_heads"] = Json::object();
  document["pretraining_tp"] = nullptr;
  EXPECT_EQ(parse_config(document, "c").or_throw(), before);
}

class ExampleModelTest : public testing::TestWithParam<std::string> {};

TEST_P(ExampleModelTest, ComesBackFromHuggingFacesForm) {
  const Config config = load_config(posix_env(), example(GetParam())).or_throw();
  const Json document = to_hugging_face(config);
  EXPECT_EQ(parse_config(document, "written").or_throw(), config);
  EXPECT_EQ(document,
            to_hugging_face(parse_config(parse_json(document.dump(2), "text").or_throw(), "again").or_throw()));
}

INSTANTIATE_TEST_SUITE_P(Shipped, ExampleModelTest,
                         testing::Values("gpt2", "gpt2-xl", "llama-2-7b", "llama-2-70b", "llama-3-8b", "llama-3-70b",
                                         "llama-3.1-405b", "llama-3.2-1b", "tinyllama-1.1b", "mistral-7b", "qwen2.5-7b",
                                         "qwen3-8b"),
                         [](const auto& instance) {
                           std::string name = instance.param;
                           for (char& c : name) c = c == '-' || c == '.' ? '_' : c;
                           return name;
                         });

TEST(ConfigTest, ComesBackFromHuggingFacesFormWithEveryOption) {
  Config llama = parsed(kSmallestLlama);
  llama.rope_scaling = {.kind = RopeScalingKind::kLinear, .factor = 2.5};
  llama.attention_input_bias = llama.attention_output_bias = llama.mlp_bias = true;
  llama.activation = Activation::kGeluTanh;
  llama.eos_token = -1;
  llama.kv_heads = 1;
  EXPECT_EQ(parse_config(to_hugging_face(llama), "c").or_throw(), llama);

  Config gpt2 = parsed(kSmallestGpt2);
  gpt2.ffn = 50;
  gpt2.tied_embeddings = false;
  gpt2.activation = Activation::kSilu;
  gpt2.bos_token = 3;
  EXPECT_EQ(parse_config(to_hugging_face(gpt2), "c").or_throw(), gpt2);
  gpt2.kv_heads = 6;  // no gpt2 has that
  EXPECT_THROW(to_hugging_face(gpt2), InternalError);
}

TEST(ConfigTest, LoadsAFileOrItsDirectory) {
  FakeEnv env;
  env.put_file("/models/small/config.json", kSmallestLlama);
  env.put_file("/models/other/readme", "");
  env.put_file("/models/broken/config.json", "{");
  const Config config = parsed(kSmallestLlama);
  EXPECT_EQ(load_config(env, "/models/small").or_throw(), config);
  EXPECT_EQ(load_config(env, "/models/small/config.json").or_throw(), config);
  EXPECT_EQ(load_config(env, "/models/other").failure().sentence(),
            "model = /models/other: the directory has no config.json; give a config.json of Hugging Face, or the "
            "directory that holds it");
  EXPECT_EQ(load_config(env, "/models/absent").failure().rule, "there is no such file or directory");
  EXPECT_FALSE(load_config(env, "/models/broken").ok());
}

TEST(ConfigTest, Names) {
  EXPECT_EQ(family_name(Family::kGpt2), "gpt2");
  EXPECT_EQ(family_name(Family::kLlama), "llama");
  EXPECT_EQ(activation_name(Activation::kGeluTanh), "gelu_new");
  EXPECT_EQ(activation_name(Activation::kSilu), "silu");
  EXPECT_EQ(activation_name(Activation::kRelu), "relu");
}

}  // namespace
}  // namespace trireme::model
