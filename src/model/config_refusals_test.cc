// What parse_config refuses, and in which words; and that no text whatever makes it crash.

#include <algorithm>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"
#include "model/activations.h"
#include "model/config.h"
#include "model/config_fields.h"
#include "model/config_reading.h"
#include "model/flops.h"
#include "model/parameters.h"

namespace trireme::model {
namespace {

constexpr std::string_view kGpt2 = R"({"model_type": "gpt2", "n_embd": 48, "n_layer": 2, "n_head": 4,
  "vocab_size": 100, "n_positions": 32, "activation_function": "gelu_new", "attn_pdrop": 0.1, "n_inner": null,
  "initializer_range": 0.02, "layer_norm_epsilon": 1e-05, "tie_word_embeddings": true, "use_cache": true})";
constexpr std::string_view kLlama = R"({"model_type": "llama", "hidden_size": 64, "intermediate_size": 96,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 100,
  "hidden_act": "silu", "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "tie_word_embeddings": false,
  "eos_token_id": [1, 2], "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
  "original_max_position_embeddings": 8192, "rope_type": "llama3"}})";

// The other families differ from llama in the type and in a few fields.
std::string base_of(Family family) {
  if (family == Family::kGpt2) return std::string(kGpt2);
  Json document = parse_json(kLlama, "llama").or_throw();
  document["model_type"] = family_name(family);
  if (family == Family::kMistral) document["sliding_window"] = 8;
  if (family == Family::kQwen2 || family == Family::kQwen3) {
    document["use_sliding_window"] = true;
    document["sliding_window"] = 8;
    document["max_window_layers"] = 1;
  }
  if (family == Family::kGemma) document["hidden_activation"] = "gelu_pytorch_tanh";
  return document.dump();
}

// The refusal of a config whose field has this JSON text for a value ("" removes the field).
std::string refusal(std::string_view base, std::string_view field, std::string_view value) {
  Json document = parse_json(base, "config.json").or_throw();
  if (value.empty()) {
    std::erase_if(document.as_object(), [&](const Json::Member& member) { return member.first == field; });
  } else {
    document[field] = parse_json(value, "value").or_throw();
  }
  const Result<Config> config = parse_config(document, "config.json");
  if (config) return "accepted";
  EXPECT_EQ(config.failure().code, ExitCode::kUsage);
  return config.failure().sentence();
}
std::string gpt2(std::string_view field, std::string_view value) { return refusal(kGpt2, field, value); }
std::string llama(std::string_view field, std::string_view value) { return refusal(kLlama, field, value); }

std::string scaling(std::string_view members) { return llama("rope_scaling", "{" + std::string(members) + "}"); }

TEST(ConfigRefusalsTest, TheBasesAreLegal) {
  EXPECT_EQ(gpt2("use_cache", "false"), "accepted");
  EXPECT_EQ(llama("use_cache", "false"), "accepted");
}

TEST(ConfigRefusalsTest, NotAModel) {
  EXPECT_EQ(parse_config(Json(3), "config.json").failure().sentence(),
            "config.json = 3: must hold one object, holds integer");
  EXPECT_EQ(gpt2("model_type", ""),
            "config.json: model_type: the field is missing; nearest legal: gpt2, llama, mistral, qwen2, qwen3, gemma, "
            "olmo2, phi3");
  EXPECT_EQ(llama("model_type", R"("gpt_neox")"),
            "config.json: model_type = gpt_neox: this model family is not supported; nearest legal: gpt2, llama, "
            "mistral, qwen2, qwen3, gemma, olmo2, phi3");
  EXPECT_EQ(llama("model_type", "7"),
            "config.json: model_type = 7: this model family is not supported; nearest legal: gpt2, llama, mistral, "
            "qwen2, qwen3, gemma, olmo2, phi3");
  EXPECT_EQ(llama("model_type", R"("mixtral")"),
            "config.json: model_type = mixtral: layouts of mixture-of-experts models are not planned yet; `trireme "
            "model` counts this model's parameters");
}

TEST(ConfigRefusalsTest, MissingSizesAreNamed) {
  for (const char* field : {"n_embd", "n_layer", "vocab_size"}) {
    EXPECT_EQ(gpt2(field, ""), std::string("config.json: ") + field +
                                   ": the field is missing, and the model's shape depends on it; add \"" + field +
                                   "\"");
  }
  for (const char* field :
       {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size"}) {
    EXPECT_EQ(llama(field, ""), std::string("config.json: ") + field +
                                    ": the field is missing, and the model's shape depends on it; add \"" + field +
                                    "\"");
  }
}

TEST(ConfigRefusalsTest, UnknownFieldsWithTheNearestKnownOne) {
  EXPECT_EQ(gpt2("n_embed", "48"),
            "config.json: n_embed = 48: gpt2 has no such field that is known here, and an unknown field may change "
            "the result; nearest legal: n_embd");
  EXPECT_EQ(llama("num_key_value_head", "1"),
            "config.json: num_key_value_head = 1: llama has no such field that is known here, and an unknown field may "
            "change the result; nearest legal: num_key_value_heads");
  EXPECT_NE(gpt2("rope_theta", "10000"), "accepted");
  EXPECT_NE(llama("n_embd", "64"), "accepted");
  EXPECT_NE(llama("something_new", "true"), "accepted");
}

TEST(ConfigRefusalsTest, ValuesOfFixedFields) {
  EXPECT_EQ(gpt2("scale_attn_weights", "false"),
            "config.json: scale_attn_weights = false: attention scores are always scaled by 1 / sqrt(head_dim); "
            "nearest legal: true");
  EXPECT_NE(gpt2("scale_attn_weights", "null"), "accepted");
  EXPECT_EQ(gpt2("scale_attn_weights", "true"), "accepted");
  EXPECT_EQ(llama("pretraining_tp", "2"),
            "config.json: pretraining_tp = 2: projections in slices (pretraining_tp) are not implemented; nearest "
            "legal: 1");
  EXPECT_EQ(llama("pretraining_tp", "1"), "accepted");
  EXPECT_EQ(llama("partial_rotary_factor", "1"), "accepted");
  EXPECT_NE(llama("partial_rotary_factor", "0.5"), "accepted");
  EXPECT_NE(llama("pretraining_tp", "true"), "accepted");
  for (Family family : {Family::kGpt2, Family::kLlama}) {
    const std::string_view base = family == Family::kGpt2 ? kGpt2 : kLlama;
    for (const FixedField& field : fixed_fields(family)) {
      EXPECT_EQ(refusal(base, field.name, field.legal), "accepted") << field.name;
      EXPECT_EQ(refusal(base, field.name, "null") == "accepted", field.null_is_legal) << field.name;
      const std::string_view other = field.legal == "false" ? "true" : "false";
      EXPECT_NE(refusal(base, field.name, other).find(field.rule), std::string::npos) << field.name;
      EXPECT_NE(refusal(base, field.name, R"("text")"), "accepted") << field.name;
    }
  }
}

TEST(ConfigRefusalsTest, FeaturesOfOtherModels) {
  EXPECT_EQ(llama("sliding_window", "4096"),
            "config.json: sliding_window = 4096: sliding-window attention is not implemented");
  EXPECT_EQ(llama("quantization_config", R"({"bits": 4})"),
            R"(config.json: quantization_config = {"bits":4}: quantized weights cannot be trained)");
  EXPECT_EQ(llama("num_local_experts", "8"),
            "config.json: num_local_experts = 8: mixture-of-experts models are not implemented");
  for (const ForeignField& field : foreign_fields()) {
    for (const char* off : {"null", "false", "{}", "[]"}) {
      EXPECT_EQ(llama(field.name, off), "accepted") << field.name;
      EXPECT_EQ(gpt2(field.name, off), "accepted") << field.name;
    }
    for (const char* on : {"true", "0", "8", R"("x")", "[1]", R"({"a": 1})"}) {
      EXPECT_NE(llama(field.name, on).find(field.rule), std::string::npos) << field.name;
    }
  }
}

TEST(ConfigRefusalsTest, EveryFieldHasOneMeaning) {
  for (Family family : {Family::kGpt2, Family::kLlama}) {
    std::vector<std::string> names = known_fields(family);
    for (const ForeignField& field : foreign_fields()) names.emplace_back(field.name);
    for (const PassedOverFields& fields : passed_over_fields()) {
      for (std::string_view name : fields.names) EXPECT_EQ(reason_to_pass_over(name), fields.reason) << name;
    }
    std::sort(names.begin(), names.end());
    EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
  }
}

TEST(ConfigRefusalsTest, Sizes) {
  EXPECT_EQ(gpt2("n_layer", "0"), "config.json: n_layer = 0: must be an integer from 1 to 100,000");
  for (const char* value : {"0", "-3", "1.5", "48.0", "true", "null", R"("48")", "[48]", "9223372036854775807"}) {
    for (const char* field : {"n_embd", "n_layer", "n_head", "vocab_size", "n_positions"}) {
      EXPECT_NE(gpt2(field, value).find("must be an integer from 1 to"), std::string::npos) << field << value;
    }
    for (const char* field : {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                              "vocab_size", "max_position_embeddings"}) {
      EXPECT_NE(llama(field, value).find("must be an integer from 1 to"), std::string::npos) << field << value;
    }
  }
  EXPECT_NE(llama("head_dim", "0"), "accepted");
  EXPECT_NE(llama("num_key_value_heads", "0"), "accepted");
  EXPECT_NE(gpt2("n_inner", "-1"), "accepted");
}

TEST(ConfigRefusalsTest, SizesThatDoNotFitTogether) {
  EXPECT_EQ(gpt2("n_head", "5"), "config.json: n_head = 5: must divide n_embd (48)");
  EXPECT_EQ(gpt2("n_ctx", "64"), "config.json: n_ctx = 64: contradicts n_positions (32)");
  EXPECT_EQ(gpt2("n_ctx", "32"), "accepted");
  EXPECT_EQ(llama("num_key_value_heads", "3"),
            "config.json: num_key_value_heads = 3: must divide num_attention_heads (4)");
  EXPECT_EQ(llama("num_key_value_heads", "8"),
            "config.json: num_key_value_heads = 8: must divide num_attention_heads (4)");
  EXPECT_EQ(llama("head_dim", "15"),
            "config.json: head_dim = 15: must be even, since rotary embeddings turn pairs; nearest legal: 14, 16");
  EXPECT_NE(llama("head_dim", "1").find("nearest legal: 2"), std::string::npos);
  EXPECT_EQ(llama("head_dim", "20"), "accepted");  // 4 heads of 20 need not make 64
  Json document = parse_json(kLlama, "c").or_throw();
  document["head_dim"] = nullptr;
  document["num_attention_heads"] = 6;
  EXPECT_EQ(parse_config(document, "c").failure().sentence(),
            "c: num_attention_heads = 6: must divide hidden_size (64) where head_dim is not given");
  document["num_attention_heads"] = 100;
  EXPECT_FALSE(parse_config(document, "c").ok());
}

TEST(ConfigRefusalsTest, SizesBeyondAnyMachine) {
  EXPECT_EQ(llama("vocab_size", "1000000000"), "accepted");
  Json document = parse_json(kLlama, "c").or_throw();
  document["hidden_size"] = 1 << 30;
  document["intermediate_size"] = 1 << 30;
  EXPECT_EQ(parse_config(document, "c").failure().sentence(),
            "c: parameters = about 6.9e+18: must be below 1e+15; look for a size with digits too many");
}

TEST(ConfigRefusalsTest, Numbers) {
  EXPECT_EQ(gpt2("attn_pdrop", "1.0"), "config.json: attn_pdrop = 1.0: must be in [0, 1)");
  EXPECT_EQ(gpt2("attn_pdrop", R"("none")"), R"(config.json: attn_pdrop = "none": must be a number, is text)");
  for (const char* value : {"-0.1", "1", "true", "null", "[0.1]"}) {
    for (const char* field : {"attn_pdrop", "embd_pdrop", "resid_pdrop"}) {
      EXPECT_NE(gpt2(field, value), "accepted") << field << value;
    }
    EXPECT_NE(llama("attention_dropout", value), "accepted") << value;
  }
  EXPECT_EQ(gpt2("layer_norm_epsilon", "0"), "config.json: layer_norm_epsilon = 0: must be above 0 and below 1");
  EXPECT_NE(llama("rms_norm_eps", "-1e-5"), "accepted");
  EXPECT_NE(llama("rms_norm_eps", "1"), "accepted");
  EXPECT_EQ(llama("rope_theta", "0.5"), "config.json: rope_theta = 0.5: must be at least 1");
  EXPECT_EQ(llama("initializer_range", "1e300"), "config.json: initializer_range = 1e+300: must be in [0, 1)");
  EXPECT_NE(llama("initializer_range", "-0.1"), "accepted");
  EXPECT_EQ(llama("initializer_range", "0"), "accepted");
  Json document = parse_json(kLlama, "c").or_throw();
  document["rms_norm_eps"] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(parse_config(document, "c").failure().value, "not a finite number");
}

TEST(ConfigRefusalsTest, FlagsTextsAndTokens) {
  EXPECT_EQ(llama("attention_bias", "1"), "config.json: attention_bias = 1: must be true or false");
  EXPECT_EQ(llama("mlp_bias", "null"), "accepted");
  EXPECT_EQ(llama("tie_word_embeddings", "null"), "accepted");
  EXPECT_NE(gpt2("tie_word_embeddings", "null"), "accepted");  // absent, it is true
  EXPECT_NE(gpt2("tie_word_embeddings", R"("yes")"), "accepted");
  EXPECT_EQ(gpt2("activation_function", "3"), "config.json: activation_function = 3: must be a text, is integer");
  EXPECT_NE(gpt2("eos_token_id", "[]").find("must be a token id"), std::string::npos);
  EXPECT_NE(gpt2("eos_token_id", R"("</s>")").find("must be a token id"), std::string::npos);
  EXPECT_NE(gpt2("bos_token_id", "1.5"), "accepted");
}

TEST(ConfigRefusalsTest, Activations) {
  EXPECT_EQ(gpt2("activation_function", R"("gelu")"),
            "config.json: activation_function = gelu: the exact GELU (by erf) is not implemented; the tanh form is "
            "\"gelu_new\" or \"gelu_pytorch_tanh\", another function: change the field only for a model that is "
            "trained from the start");
  EXPECT_EQ(llama("hidden_act", R"("quick_gelu")"),
            "config.json: hidden_act = quick_gelu: this activation function is not implemented; nearest legal: "
            "gelu_new, gelu_pytorch_tanh, silu, relu");
  for (const char* text : {R"("gelu_new")", R"("gelu_pytorch_tanh")", R"("silu")", R"("swish")", R"("relu")"}) {
    EXPECT_EQ(llama("hidden_act", text), "accepted");
  }
}

TEST(ConfigRefusalsTest, RotaryScaling) {
  EXPECT_EQ(scaling(R"("rope_type": "yarn", "factor": 4.0)"),
            "config.json: rope_scaling: rope_type = yarn: this rotary scaling is not implemented; nearest legal: "
            "default, linear, llama3");
  EXPECT_EQ(scaling(R"("type": "linear")"),
            "config.json: rope_scaling: factor: the field is missing, and rotary frequencies depend on it; add "
            "\"factor\"");
  EXPECT_EQ(scaling(R"("type": "linear", "factor": 0.5)"),
            "config.json: rope_scaling: factor = 0.5: must be at least 1");
  EXPECT_EQ(scaling(R"("type": "linear", "rope_type": "llama3", "factor": 2.0)"),
            "config.json: rope_scaling: type = \"linear\": contradicts rope_type (\"llama3\")");
  EXPECT_EQ(scaling(R"("type": "linear", "factor": 2.0, "low_freq_factor": 1.0)"),
            "config.json: rope_scaling: low_freq_factor = 1.0: rotary scaling of type linear has no such field");
  EXPECT_EQ(scaling(R"("type": "linear", "factor": 2.0, "partial_rotary_factor": 0.5)"),
            "config.json: rope_scaling: partial_rotary_factor = 0.5: rotary embeddings of a part of a head are not "
            "implemented; nearest legal: 1.0");
  EXPECT_NE(scaling(R"("type": 3)"), "accepted");
  EXPECT_NE(scaling(R"("factor": 2.0)"), "accepted");  // of type default
  EXPECT_EQ(llama("rope_scaling", "2.0"), "config.json: rope_scaling = 2.0: must be an object or null");
  EXPECT_EQ(llama("rope_parameters", R"({"rope_theta": 1e4})").substr(0, 80).find("config.json: rope_scaling = "), 0u);
  EXPECT_EQ(scaling(R"("rope_theta": 10000.0)"),
            "config.json: rope_theta = 500000: contradicts rope_scaling's rope_theta (10000)");
}

TEST(ConfigRefusalsTest, Llama3RotaryScaling) {
  const std::string others = R"("rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192)";
  EXPECT_EQ(scaling(others + R"(, "low_freq_factor": 1.0, "high_freq_factor": 4.0)"), "accepted");
  EXPECT_NE(scaling(others + R"(, "low_freq_factor": 1.0)").find("high_freq_factor: the field is missing"),
            std::string::npos);
  EXPECT_EQ(scaling(others + R"(, "low_freq_factor": 4.0, "high_freq_factor": 4.0)"),
            "config.json: rope_scaling: high_freq_factor = 4: must be above low_freq_factor (4)");
  EXPECT_NE(scaling(others + R"(, "low_freq_factor": 0, "high_freq_factor": 4.0)"), "accepted");
  EXPECT_NE(scaling(R"("rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0)"),
            "accepted");
}

// Everything downstream of a config that was let in works on it.
void use(const Config& config) {
  EXPECT_EQ(parse_config(to_hugging_face(config), "again").or_throw(), config);
  if (config.layers > 1000 || config.head_dim > 100'000) return;  // for the test's time
  const ParameterTable table = make_parameter_table(config);
  EXPECT_GT(table.total(), 0);
  if (config.position == PositionKind::kRotary) {
    EXPECT_EQ(static_cast<std::int64_t>(rotary_inverse_frequencies(config).size()), config.head_dim / 2);
  }
  for (const UnitFlow& flow : flows_by_class(config)) EXPECT_FALSE(saved_activations(flow).empty());
  EXPECT_GT(model_flops(config, 1, 1).count, 0.0);
}

// Whoever counts reads at least what is computed, and can work on it.
void count(const Json& document, bool is_computed) {
  const Result<ConfigReading> reading = read_config(document, "counted");
  ASSERT_TRUE(reading.ok() || !is_computed);
  if (!reading) return;
  EXPECT_EQ(reading->not_computed.empty(), is_computed);
  if (reading->config.layers > 1000) return;  // for the test's time
  EXPECT_GT(make_parameter_table(reading->config).total(), 0);
  for (UnitKind unit : {UnitKind::kEmbedding, UnitKind::kDecoder, UnitKind::kHead}) {
    EXPECT_FALSE(saved_activations(unit_flow(reading->config, unit == UnitKind::kEmbedding ? 0 : 1)).empty());
  }
  EXPECT_GT(model_flops(reading->config, 1, 1).count, 0.0);
}

// One to three changes: bytes replaced (digits by digits), removed, put in or copied elsewhere.
std::string mutated(std::string text, std::uint64_t trial) {
  constexpr std::string_view kBytes = "0123456789-.eE{}[]\",:tfnaul_ \\\x80";
  std::uint64_t draw = 0;
  const auto below = [&](std::size_t end) {
    return static_cast<std::size_t>(random_bits({.seed = 1, .stream = trial}, draw++)) % end;
  };
  const std::size_t changes = 1 + below(3);
  for (std::size_t change = 0; change < changes && !text.empty(); ++change) {
    const std::size_t at = below(text.size());
    switch (below(4)) {
      case 0:
        text[at] = kBytes[below(text[at] >= '0' && text[at] <= '9' ? 10 : kBytes.size())];
        break;
      case 1:
        text.erase(at, 1 + below(3));
        break;
      case 2:
        text.insert(at, 1, kBytes[below(kBytes.size())]);
        break;
      default:
        text.insert(at, text.substr(below(text.size()), 1 + below(12)));
    }
  }
  return text;
}

TEST(ConfigRefusalsTest, NoMutationCrashes) {
  int accepted = 0;
  int refused = 0;
  int unreadable = 0;
  for (std::uint64_t trial = 0; trial < 20000; ++trial) {
    const std::string text = mutated(base_of(static_cast<Family>(trial % kFamilyCount)), trial);
    const Result<Json> document = parse_json(text, "mutated");
    if (!document) {
      ++unreadable;
      continue;
    }
    const Result<Config> config = parse_config(*document, "mutated");
    config ? ++accepted : ++refused;
    count(*document, config.ok());
    if (config) {
      use(*config);
    } else {
      EXPECT_FALSE(config.failure().sentence().empty());
    }
  }
  EXPECT_GT(accepted, 100);
  EXPECT_GT(refused, 500);
  EXPECT_GT(unreadable, 500);
}

// Mutations of values alone, so that every trial reaches parse_config.
TEST(ConfigRefusalsTest, NoValueCrashes) {
  const std::vector<Json> values = {nullptr,
                                    true,
                                    false,
                                    0,
                                    1,
                                    -1,
                                    7,
                                    std::int64_t{1} << 30,
                                    std::numeric_limits<std::int64_t>::max(),
                                    std::numeric_limits<std::int64_t>::min(),
                                    0.0,
                                    0.5,
                                    -1e300,
                                    1e300,
                                    5e-324,
                                    "",
                                    "linear",
                                    "llama3",
                                    "gelu",
                                    Json::array(),
                                    Json::object(),
                                    Json::object({{"rope_type", "linear"}, {"factor", 1e300}}),
                                    std::string(500, 'x')};
  int accepted = 0;
  for (int family = 0; family < kFamilyCount; ++family) {
    const Json legal = parse_json(base_of(static_cast<Family>(family)), "base").or_throw();
    for (const auto& [name, unused] : legal.as_object()) {
      for (const Json& value : values) {
        for (const auto& [second, unused_too] : legal.as_object()) {
          for (const Json& second_value : {Json(1), Json(3), Json(nullptr), Json(1 << 20)}) {
            Json document = legal;
            document[name] = value;
            document[second] = second_value;
            const Result<Config> config = parse_config(document, "mutated");
            count(document, config.ok());
            if (!config) continue;
            use(*config);
            ++accepted;
          }
        }
      }
    }
  }
  EXPECT_GT(accepted, 1000);
}

}  // namespace
}  // namespace trireme::model
