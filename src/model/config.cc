#include "model/config.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/check.h"
#include "model/config_reading.h"

namespace trireme::model {
namespace {

// By Family.
struct FamilyNames {
  std::string_view name;
  std::string_view architecture;
};
constexpr std::array kFamilies = std::to_array<FamilyNames>({
    {"gpt2", "GPT2LMHeadModel"},
    {"llama", "LlamaForCausalLM"},
    {"mistral", "MistralForCausalLM"},
    {"qwen2", "Qwen2ForCausalLM"},
    {"qwen3", "Qwen3ForCausalLM"},
    {"gemma", "GemmaForCausalLM"},
    {"olmo2", "Olmo2ForCausalLM"},
    {"phi3", "Phi3ForCausalLM"},
});
static_assert(kFamilies.size() == kFamilyCount);

Json token(std::int64_t id) { return id < 0 ? Json(nullptr) : Json(id); }

Json gpt2_document(const Config& c) {
  TRIREME_CHECK(c.position == PositionKind::kLearned && c.norm == NormKind::kLayerNorm && !c.gated_mlp);
  TRIREME_CHECK(c.attention_input_bias && c.attention_output_bias && c.mlp_bias);
  TRIREME_CHECK_EQ(c.query_width(), c.hidden);
  TRIREME_CHECK_EQ(c.kv_heads, c.heads);
  return Json::object({
      {"activation_function", activation_name(c.activation)},
      {"architectures", Json(Json::Array{"GPT2LMHeadModel"})},
      {"attn_pdrop", c.attention_dropout},
      {"bos_token_id", token(c.bos_token)},
      {"embd_pdrop", c.embedding_dropout},
      {"eos_token_id", token(c.eos_token)},
      {"initializer_range", c.initializer_range},
      {"layer_norm_epsilon", c.norm_epsilon},
      {"model_type", family_name(c.family)},
      {"n_embd", c.hidden},
      {"n_head", c.heads},
      {"n_inner", c.ffn == 4 * c.hidden ? Json(nullptr) : Json(c.ffn)},
      {"n_layer", c.layers},
      {"n_positions", c.max_positions},
      {"resid_pdrop", c.residual_dropout},
      {"tie_word_embeddings", c.tied_embeddings},
      {"vocab_size", c.vocabulary},
  });
}

Json rope_scaling_document(const RopeScaling& scaling) {
  switch (scaling.kind) {
    case RopeScalingKind::kNone:
      return Json(nullptr);
    case RopeScalingKind::kLinear:
      return Json::object({{"factor", scaling.factor}, {"rope_type", "linear"}});
    case RopeScalingKind::kLlama3:
      return Json::object({{"factor", scaling.factor},
                           {"high_freq_factor", scaling.high_frequency_factor},
                           {"low_freq_factor", scaling.low_frequency_factor},
                           {"original_max_position_embeddings", scaling.original_positions},
                           {"rope_type", "llama3"}});
  }
  TRIREME_CHECK(false, "rope scaling kind {}", static_cast<int>(scaling.kind));
}

// The members that rotary families have beyond llama's, or instead of its biases.
void add_family_members(const Config& c, Json& document) {
  const Family f = c.family;
  const bool qwen = f == Family::kQwen2 || f == Family::kQwen3;
  if (f == Family::kLlama || f == Family::kQwen3 || f == Family::kGemma) {
    TRIREME_CHECK_EQ(c.attention_input_bias, c.attention_output_bias);
    document["attention_bias"] = c.attention_input_bias;
  } else {
    TRIREME_CHECK(c.attention_input_bias == (f == Family::kQwen2) && !c.attention_output_bias);
  }
  if (f == Family::kLlama) document["mlp_bias"] = c.mlp_bias;
  if (f == Family::kPhi3) document["resid_pdrop"] = c.residual_dropout;
  if (qwen || f == Family::kMistral || f == Family::kPhi3) {
    Json& window = document["sliding_window"];  // null: none
    if (c.sliding_window > 0) window = c.sliding_window;
  }
  if (qwen) {
    document["use_sliding_window"] = c.sliding_window > 0;
    document["max_window_layers"] = c.sliding_window > 0 ? c.first_window_layer : c.layers;
  }
  if (f == Family::kGemma) {
    // What transformers calls the function that gpt2's files call gelu_new.
    if (c.activation == Activation::kGeluTanh) document["hidden_act"] = "gelu_pytorch_tanh";
    document["hidden_activation"] = *document.find("hidden_act");
  }
}

// What no member says: it is the family's.
void check_family(const Config& c) {
  const Family f = c.family;
  TRIREME_CHECK(c.position == PositionKind::kRotary && c.gated_mlp && c.embedding_dropout == 0.0);
  TRIREME_CHECK(c.norm == (f == Family::kGemma ? NormKind::kRmsNormOffset : NormKind::kRmsNorm));
  TRIREME_CHECK((c.embedding_scale != 1.0) == (f == Family::kGemma && c.hidden != 1));
  TRIREME_CHECK(c.qk_norm == (f == Family::kQwen3   ? QkNorm::kHeads
                              : f == Family::kOlmo2 ? QkNorm::kWhole
                                                    : QkNorm::kNone));
  TRIREME_CHECK(c.norms_outputs == (f == Family::kOlmo2) && c.fused_projections == (f == Family::kPhi3));
  TRIREME_CHECK(f == Family::kPhi3 || c.residual_dropout == 0.0);
  TRIREME_CHECK(f == Family::kLlama || !c.mlp_bias);
  const bool windows = f == Family::kMistral || f == Family::kPhi3,
             by_layer = f == Family::kQwen2 || f == Family::kQwen3;
  TRIREME_CHECK(c.sliding_window == 0 || by_layer || (windows && c.first_window_layer == 0));
}

Json rotary_family_document(const Config& c) {
  check_family(c);
  Json document = Json::object({
      {"architectures", Json(Json::Array{kFamilies[static_cast<std::size_t>(c.family)].architecture})},
      {"attention_dropout", c.attention_dropout},
      {"bos_token_id", token(c.bos_token)},
      {"eos_token_id", token(c.eos_token)},
      {"head_dim", c.head_dim},
      {"hidden_act", activation_name(c.activation)},
      {"hidden_size", c.hidden},
      {"initializer_range", c.initializer_range},
      {"intermediate_size", c.ffn},
      {"max_position_embeddings", c.max_positions},
      {"model_type", family_name(c.family)},
      {"num_attention_heads", c.heads},
      {"num_hidden_layers", c.layers},
      {"num_key_value_heads", c.kv_heads},
      {"rms_norm_eps", c.norm_epsilon},
      {"rope_scaling", rope_scaling_document(c.rope_scaling)},
      {"rope_theta", c.rope_theta},
      {"tie_word_embeddings", c.tied_embeddings},
      {"vocab_size", c.vocabulary},
  });
  add_family_members(c, document);
  std::ranges::sort(document.as_object(), {}, &Json::Member::first);
  return document;
}

}  // namespace

std::string config_file(Env& env, const std::string& path) {
  return env.is_directory(path) ? join_path(path, "config.json") : path;
}

Result<Json> load_config_document(Env& env, const std::string& path) {
  const std::string file = config_file(env, path);
  if (!env.exists(file)) {
    return Failure{.option = "model",
                   .value = path,
                   .rule = file == path ? "there is no such file or directory" : "the directory has no config.json",
                   .nearest = "give a config.json of Hugging Face, or the directory that holds it"};
  }
  return parse_json(env.read_file(file), file);
}

Result<Config> load_config(Env& env, const std::string& path) {
  const Result<Json> document = load_config_document(env, path);
  if (!document) return document.failure();
  return parse_config(*document, config_file(env, path));
}

Result<ConfigReading> load_config_reading(Env& env, const std::string& path) {
  const Result<Json> document = load_config_document(env, path);
  if (!document) return document.failure();
  return read_config(*document, config_file(env, path));
}

Json to_hugging_face(const Config& config) {
  return config.family == Family::kGpt2 ? gpt2_document(config) : rotary_family_document(config);
}

std::string family_name(Family family) { return std::string(kFamilies[static_cast<std::size_t>(family)].name); }

std::optional<Family> family_of(std::string_view name) {
  const auto at = std::ranges::find(kFamilies, name, &FamilyNames::name);
  if (at == kFamilies.end()) return std::nullopt;
  return static_cast<Family>(at - kFamilies.begin());
}

std::string family_names() {
  std::string names;
  for (const FamilyNames& family : kFamilies) {
    if (!names.empty()) names += ", ";
    names += family.name;
  }
  return names;
}

std::string activation_name(Activation activation) {
  switch (activation) {
    case Activation::kGeluTanh:
      return "gelu_new";
    case Activation::kSilu:
      return "silu";
    case Activation::kRelu:
      return "relu";
  }
  TRIREME_CHECK(false, "activation {}", static_cast<int>(activation));
}

}  // namespace trireme::model
