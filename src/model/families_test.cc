// The families that are read and planned beside gpt2 and llama.

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "model/activations.h"
#include "model/config.h"
#include "model/config_fields.h"
#include "model/parameters.h"

namespace trireme::model {
namespace {

constexpr std::array kNewFamilies = {Family::kMistral, Family::kQwen2, Family::kQwen3, Family::kGemma};

Json smallest(Family family) {
  Json document = parse_json(R"({"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100})",
                             "c")
                      .or_throw();
  document["model_type"] = family_name(family);
  return document;
}
Json with(Family family, std::string_view more) {
  Json document = smallest(family);
  const Json members = parse_json(more, "more").or_throw();
  for (const auto& [name, value] : members.as_object()) document[name] = value;
  return document;
}
Config parsed(Family family, std::string_view more = "{}") { return parse_config(with(family, more), "c").or_throw(); }
std::string refusal(Family family, std::string_view more) {
  const Result<Config> config = parse_config(with(family, more), "c");
  return config ? "accepted" : config.failure().sentence();
}

const Parameter* found(const ParameterTable& table, std::string_view name) {
  const int index = table.find(name);
  return index < 0 ? nullptr : &table.parameters[static_cast<std::size_t>(index)];
}
bool has(const ParameterTable& table, std::string_view name) { return table.find(name) >= 0; }

TEST(FamiliesTest, NamesGoBothWays) {
  for (int family = 0; family < kFamilyCount; ++family) {
    EXPECT_EQ(family_of(family_name(static_cast<Family>(family))), static_cast<Family>(family));
  }
  EXPECT_FALSE(family_of("mamba").has_value());
  EXPECT_EQ(family_names(), "gpt2, llama, mistral, qwen2, qwen3, gemma");
}

TEST(FamiliesTest, AbsentFieldsTakeHuggingFacesDefaults) {
  const auto bare = [](Family family) {
    return parse_config(with(family, R"({"num_attention_heads": 32, "num_key_value_heads": null})"), "c").or_throw();
  };
  const auto kv_default = [](Family family) {
    Json document = with(family, R"({"num_attention_heads": 32})");
    std::erase_if(document.as_object(), [](const Json::Member& m) { return m.first == "num_key_value_heads"; });
    return parse_config(document, "c").or_throw().kv_heads;
  };
  for (Family family : kNewFamilies) {
    EXPECT_EQ(bare(family).kv_heads, 32);
    EXPECT_EQ(bare(family).norm_epsilon, 1e-6);
    EXPECT_EQ(bare(family).rope_theta, 10000.0);
    EXPECT_FALSE(bare(family).attention_output_bias);
    EXPECT_FALSE(bare(family).mlp_bias);
    EXPECT_TRUE(bare(family).gated_mlp);
    EXPECT_EQ(bare(family).attention_input_bias, family == Family::kQwen2);
    EXPECT_EQ(bare(family).qk_norm, family == Family::kQwen3);
    EXPECT_EQ(bare(family).tied_embeddings, family == Family::kGemma);
    EXPECT_EQ(bare(family).sliding_window, family == Family::kMistral ? 4096 : 0);
    EXPECT_EQ(bare(family).activation, family == Family::kGemma ? Activation::kGeluTanh : Activation::kSilu);
  }
  EXPECT_EQ(kv_default(Family::kMistral), 8);
  EXPECT_EQ(kv_default(Family::kQwen2), 32);
  EXPECT_EQ(kv_default(Family::kQwen3), 32);
  EXPECT_EQ(kv_default(Family::kGemma), 16);
  EXPECT_EQ(bare(Family::kMistral).head_dim, 2);
  EXPECT_EQ(bare(Family::kQwen2).head_dim, 2);
  EXPECT_EQ(bare(Family::kQwen3).head_dim, 128);
  EXPECT_EQ(bare(Family::kGemma).head_dim, 256);
  EXPECT_EQ(bare(Family::kMistral).max_positions, 131072);
  EXPECT_EQ(bare(Family::kQwen2).max_positions, 32768);
  EXPECT_EQ(bare(Family::kQwen3).max_positions, 32768);
  EXPECT_EQ(bare(Family::kGemma).max_positions, 8192);
  EXPECT_EQ(bare(Family::kQwen3).bos_token, -1);
  EXPECT_EQ(bare(Family::kMistral).eos_token, 2);
  EXPECT_EQ(bare(Family::kGemma).bos_token, 2);
  EXPECT_EQ(bare(Family::kGemma).eos_token, 1);
  // A default head_dim need not divide anything.
  EXPECT_EQ(parsed(Family::kQwen3, R"({"num_attention_heads": 6})").query_width(), 6 * 128);
  EXPECT_NE(refusal(Family::kQwen2, R"({"num_attention_heads": 6})"), "accepted");
  EXPECT_NE(refusal(Family::kQwen3, R"({"num_attention_heads": 6, "head_dim": null})"), "accepted");
}

TEST(FamiliesTest, SlidingWindows) {
  EXPECT_EQ(parsed(Family::kMistral, R"({"sliding_window": 128})").sliding_window, 128);
  EXPECT_EQ(parsed(Family::kMistral, R"({"sliding_window": null})").sliding_window, 0);
  EXPECT_NE(refusal(Family::kMistral, R"({"sliding_window": 0})"), "accepted");
  EXPECT_NE(refusal(Family::kMistral, R"({"use_sliding_window": true})"), "accepted");
  for (Family family : {Family::kQwen2, Family::kQwen3}) {
    EXPECT_EQ(parsed(family, R"({"sliding_window": 128})").sliding_window, 0);  // off unless switched on
    const Config on = parsed(family, R"({"use_sliding_window": true, "sliding_window": 128, "max_window_layers": 2,
                           "layer_types": ["full_attention", "full_attention", "sliding_attention"]})");
    EXPECT_EQ(on.sliding_window, 128);
    EXPECT_EQ(on.first_window_layer, 2);
    // No layer from 28 on in a model of 3.
    EXPECT_EQ(parsed(family, R"({"use_sliding_window": true, "sliding_window": 128})").sliding_window, 0);
    EXPECT_EQ(refusal(family, R"({"layer_types": ["full_attention", "full_attention", "sliding_attention"]})"),
              "c: layer_types = [\"full_attention\",\"full_attention\",\"sliding_attention\"]: must name every layer's "
              "attention as use_sliding_window and max_window_layers have it; leave the field out");
    EXPECT_NE(refusal(family, R"({"layer_types": ["full_attention"]})"), "accepted");
    EXPECT_NE(refusal(family, R"({"layer_types": "full_attention"})"), "accepted");
    EXPECT_EQ(refusal(family, R"({"layer_types": ["full_attention", "full_attention", "full_attention"]})"),
              "accepted");
  }
  EXPECT_NE(refusal(Family::kGemma, R"({"sliding_window": 128})"), "accepted");
}

TEST(FamiliesTest, GemmasActivation) {
  EXPECT_EQ(parsed(Family::kGemma, R"({"hidden_act": "gelu"})").activation, Activation::kGeluTanh);
  EXPECT_EQ(parsed(Family::kGemma, R"({"hidden_act": "gelu", "hidden_activation": "silu"})").activation,
            Activation::kSilu);
  EXPECT_EQ(parsed(Family::kGemma, R"({"hidden_act": "relu", "hidden_activation": null})").activation,
            Activation::kRelu);
  EXPECT_NE(refusal(Family::kGemma, R"({"hidden_activation": "gelu"})").find("by erf"), std::string::npos);
  EXPECT_NE(refusal(Family::kMistral, R"({"hidden_act": "gelu"})").find("by erf"), std::string::npos);
}

TEST(FamiliesTest, EveryFieldHasOneMeaning) {
  for (Family family : kNewFamilies) {
    std::vector<std::string> names = known_fields(family);
    std::sort(names.begin(), names.end());
    EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
    for (const FixedField& field : fixed_fields(family)) {
      Json document = smallest(family);
      document[field.name] = parse_json(field.legal, "legal").or_throw();
      EXPECT_TRUE(parse_config(document, "c").ok()) << field.name;
      document[field.name] = nullptr;
      EXPECT_EQ(parse_config(document, "c").ok(), field.null_is_legal) << field.name;
      document[field.name] = field.legal == "false";
      EXPECT_NE(parse_config(document, "c").failure().sentence().find(field.rule), std::string::npos) << field.name;
    }
    EXPECT_EQ(refusal(family, R"({"num_key_value_head": 1})"),
              "c: num_key_value_head = 1: " + family_name(family) +
                  " has no such field that is known here, and an unknown field may change the result; nearest legal: "
                  "num_key_value_heads");
    EXPECT_NE(refusal(family, R"({"num_local_experts": 8})"), "accepted");
    EXPECT_NE(refusal(family, R"({"mlp_bias": true})"), "accepted");
  }
}

TEST(FamiliesTest, ComeBackFromHuggingFacesForm) {
  for (Family family : kNewFamilies) {
    std::vector<Config> configs = {parsed(family)};
    configs.push_back(parsed(family, R"({"tie_word_embeddings": true, "head_dim": 20, "rope_theta": 1e6,
      "rope_scaling": {"type": "linear", "factor": 2.0}, "attention_dropout": 0.5, "eos_token_id": [3, 4],
      "initializer_range": 0.5, "hidden_act": "relu", "max_position_embeddings": 77})"));
    if (family == Family::kMistral) configs.push_back(parsed(family, R"({"sliding_window": null})"));
    if (family == Family::kQwen2 || family == Family::kQwen3) {
      configs.push_back(parsed(family, R"({"use_sliding_window": true, "sliding_window": 8, "max_window_layers": 0})"));
    }
    if (family == Family::kQwen3 || family == Family::kGemma) {
      configs.push_back(parsed(family, R"({"attention_bias": true, "tie_word_embeddings": false})"));
    }
    for (const Config& config : configs) {
      const Json document = to_hugging_face(config);
      EXPECT_EQ(parse_config(document, "again").or_throw(), config) << document.dump();
    }
  }
  EXPECT_EQ(*to_hugging_face(parsed(Family::kGemma)).find("hidden_activation"), Json("gelu_pytorch_tanh"));
  Config mistral = parsed(Family::kMistral);
  mistral.attention_input_bias = true;  // no mistral has that
  EXPECT_THROW(to_hugging_face(mistral), InternalError);
}

TEST(FamiliesTest, BiasesOfQwen2AreOnQueryKeyAndValue) {
  const ParameterTable table = make_parameter_table(parsed(Family::kQwen2));
  EXPECT_TRUE(has(table, "model.layers.2.self_attn.q_proj.bias"));
  EXPECT_TRUE(has(table, "model.layers.2.self_attn.k_proj.bias"));
  EXPECT_TRUE(has(table, "model.layers.2.self_attn.v_proj.bias"));
  EXPECT_FALSE(has(table, "model.layers.2.self_attn.o_proj.bias"));
  EXPECT_FALSE(has(table, "model.layers.2.self_attn.q_norm.weight"));
  EXPECT_FALSE(has(table, "model.layers.2.mlp.up_proj.bias"));
}

TEST(FamiliesTest, HeadNormsOfQwen3ArePartialInBothModes) {
  const ParameterTable table = make_parameter_table(parsed(Family::kQwen3, R"({"head_dim": 6})"));
  for (const auto& [name, role] : {std::pair{"model.layers.2.self_attn.q_norm.weight", Role::kQueryNormWeight},
                                   std::pair{"model.layers.2.self_attn.k_norm.weight", Role::kKeyNormWeight}}) {
    const Parameter* norm = found(table, name);
    ASSERT_NE(norm, nullptr) << name;
    EXPECT_EQ(norm->shape, std::vector<std::int64_t>{6});
    EXPECT_EQ(norm->role, role);
    EXPECT_EQ(norm->value, AxisState::kReplicated);
    EXPECT_EQ(norm->gradient.plain, AxisState::kPartial);
    EXPECT_EQ(norm->gradient.sequence_parallel, AxisState::kPartial);
    EXPECT_EQ(norm->init.kind, InitKind::kOnes);
    EXPECT_FALSE(norm->decay);
    EXPECT_EQ(table.find(3, role), table.find(name));
  }
  EXPECT_EQ(found(table, "model.layers.2.input_layernorm.weight")->gradient.plain, AxisState::kReplicated);
}

TEST(FamiliesTest, HeadNormsKeepQueriesAndKeysFromBeforeThem) {
  const auto names = [](Family family) {
    std::vector<Saved> all;
    for (const SavedActivation& entry : activation_table(parsed(family), UnitKind::kDecoder)) all.push_back(entry.name);
    return all;
  };
  std::vector<Saved> qwen3 = names(Family::kQwen3);
  EXPECT_EQ(std::ranges::count(qwen3, Saved::kQueryBeforeNorm), 1);
  EXPECT_EQ(std::ranges::count(qwen3, Saved::kKeyBeforeNorm), 1);
  std::erase(qwen3, Saved::kQueryBeforeNorm);
  std::erase(qwen3, Saved::kKeyBeforeNorm);
  EXPECT_EQ(qwen3, names(Family::kMistral));
}

TEST(FamiliesTest, NormsOfGemmaStartFromZero) {
  const ParameterTable table = make_parameter_table(parsed(Family::kGemma));
  EXPECT_EQ(found(table, "model.norm.weight")->init.kind, InitKind::kZeros);
  EXPECT_EQ(found(table, "model.layers.0.input_layernorm.weight")->init.kind, InitKind::kZeros);
  EXPECT_FALSE(has(table, "lm_head.weight"));
}

TEST(FamiliesTest, TheEngineTrainsTwoOfThem) {
  EXPECT_TRUE(check_trainable(parsed(Family::kLlama)).ok());
  for (Family family : kNewFamilies) {
    const Status status = check_trainable(parsed(family));
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.failure().code, ExitCode::kUsage);
    EXPECT_EQ(status.failure().sentence(),
              "model = " + family_name(family) +
                  ": this build's engine trains gpt2 and llama; `trireme plan` and `trireme model` read this one too");
  }
}

}  // namespace
}  // namespace trireme::model
