// The families beside gpt2 and llama.

#include <algorithm>
#include <array>
#include <set>
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

constexpr std::array kNewFamilies = {Family::kMistral, Family::kQwen2, Family::kQwen3,
                                     Family::kGemma,   Family::kOlmo2, Family::kPhi3};

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
  EXPECT_EQ(family_names(), "gpt2, llama, mistral, qwen2, qwen3, gemma, olmo2, phi3");
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
    const bool newer = family == Family::kOlmo2 || family == Family::kPhi3;
    EXPECT_EQ(bare(family).norm_epsilon, newer ? 1e-5 : 1e-6);
    EXPECT_EQ(bare(family).rope_theta, 10000.0);
    EXPECT_FALSE(bare(family).attention_output_bias);
    EXPECT_FALSE(bare(family).mlp_bias);
    EXPECT_TRUE(bare(family).gated_mlp);
    EXPECT_EQ(bare(family).attention_input_bias, family == Family::kQwen2);
    EXPECT_EQ(bare(family).qk_norm, family == Family::kQwen3   ? QkNorm::kHeads
                                    : family == Family::kOlmo2 ? QkNorm::kWhole
                                                               : QkNorm::kNone);
    EXPECT_EQ(bare(family).norms_outputs, family == Family::kOlmo2);
    EXPECT_EQ(bare(family).fused_projections, family == Family::kPhi3);
    EXPECT_EQ(bare(family).embedding_scale, family == Family::kGemma ? 8.0 : 1.0);
    EXPECT_EQ(bare(family).norm == NormKind::kRmsNormOffset, family == Family::kGemma);
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
    if (family == Family::kPhi3) configs.push_back(parsed(family, R"({"sliding_window": 7, "resid_pdrop": 0.25})"));
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
    std::set<std::string> all;
    for (const SavedActivation& entry : saved_activations(unit_flow(parsed(family), 1))) all.insert(entry.value.name);
    return all;
  };
  std::set<std::string> qwen3 = names(Family::kQwen3);
  for (const std::string part : {"query", "key"}) {
    EXPECT_EQ(qwen3.erase(part + " before norm"), 1u);
    EXPECT_EQ(qwen3.erase(part + " before norm gradient"), 1u);
    EXPECT_TRUE(qwen3.insert(part + " gradient").second);
  }
  EXPECT_EQ(qwen3, names(Family::kMistral));
}

TEST(FamiliesTest, NormsOfGemmaStartFromZero) {
  const ParameterTable table = make_parameter_table(parsed(Family::kGemma));
  EXPECT_EQ(found(table, "model.norm.weight")->init.kind, InitKind::kZeros);
  EXPECT_EQ(found(table, "model.layers.0.input_layernorm.weight")->init.kind, InitKind::kZeros);
  EXPECT_FALSE(has(table, "lm_head.weight"));
}

TEST(FamiliesTest, TensorsOfOlmo2AndPhi3) {
  const ParameterTable olmo2 = make_parameter_table(parsed(Family::kOlmo2));
  EXPECT_FALSE(has(olmo2, "model.layers.0.input_layernorm.weight"));
  EXPECT_TRUE(has(olmo2, "model.layers.0.post_attention_layernorm.weight"));
  EXPECT_TRUE(has(olmo2, "model.layers.0.post_feedforward_layernorm.weight"));
  const Parameter* key_norm = found(olmo2, "model.layers.0.self_attn.k_norm.weight");
  ASSERT_NE(key_norm, nullptr);
  EXPECT_EQ(key_norm->shape, std::vector<std::int64_t>{2 * 16});  // all heads together
  EXPECT_EQ(key_norm->value, AxisState::kSharded);
  EXPECT_FALSE(key_norm->decay);
  const ParameterTable phi3 = make_parameter_table(parsed(Family::kPhi3));
  const Parameter* qkv = found(phi3, "model.layers.2.self_attn.qkv_proj.weight");
  const Parameter* gate_up = found(phi3, "model.layers.2.mlp.gate_up_proj.weight");
  ASSERT_TRUE(qkv != nullptr && gate_up != nullptr);
  EXPECT_EQ(qkv->shape, (std::vector<std::int64_t>{(4 + 2 * 2) * 16, 64}));
  EXPECT_EQ(qkv->split.blocks.size(), 3U);
  EXPECT_EQ(gate_up->shape, (std::vector<std::int64_t>{2 * 96, 64}));
  EXPECT_EQ(gate_up->split.blocks.size(), 2U);
  EXPECT_FALSE(has(phi3, "model.layers.2.mlp.up_proj.weight"));
}

// The counts that the models' own files give.
TEST(FamiliesTest, CountsOfRealModels) {
  struct Real {
    const char* config;
    std::int64_t total;
  };
  constexpr Real kReal[] = {
      {R"({"model_type": "mistral", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000, "sliding_window": 4096})",
       7'241'732'096},
      {R"({"model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
        "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064})",
       7'615'616'512},
      {R"({"model_type": "qwen3", "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36,
        "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936})",
       8'190'735'360},
      {R"({"model_type": "gemma", "hidden_size": 2048, "intermediate_size": 16384, "num_hidden_layers": 18,
        "num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 256, "vocab_size": 256000})",
       2'506'172'416},
      {R"({"model_type": "olmo2", "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 100352})",
       7'298'617'344},
      {R"({"model_type": "phi3", "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 32064, "sliding_window": 2047})",
       3'821'079'552},
  };
  for (const Real& real : kReal) {
    const Config config = parse_config(parse_json(real.config, "c").or_throw(), "c").or_throw();
    EXPECT_EQ(make_parameter_table(config).total(), real.total) << real.config;
  }
}

}  // namespace
}  // namespace trireme::model
