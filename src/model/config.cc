#include "model/config.h"

#include "base/check.h"

namespace trireme::model {
namespace {

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

Json llama_document(const Config& c) {
  TRIREME_CHECK(c.position == PositionKind::kRotary && c.norm == NormKind::kRmsNorm && c.gated_mlp);
  TRIREME_CHECK_EQ(c.attention_input_bias, c.attention_output_bias);
  TRIREME_CHECK(c.embedding_dropout == 0.0 && c.residual_dropout == 0.0);
  return Json::object({
      {"architectures", Json(Json::Array{"LlamaForCausalLM"})},
      {"attention_bias", c.attention_input_bias},
      {"attention_dropout", c.attention_dropout},
      {"bos_token_id", token(c.bos_token)},
      {"eos_token_id", token(c.eos_token)},
      {"head_dim", c.head_dim},
      {"hidden_act", activation_name(c.activation)},
      {"hidden_size", c.hidden},
      {"initializer_range", c.initializer_range},
      {"intermediate_size", c.ffn},
      {"max_position_embeddings", c.max_positions},
      {"mlp_bias", c.mlp_bias},
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
}

}  // namespace

Result<Config> load_config(Env& env, const std::string& path) {
  const std::string file = env.is_directory(path) ? join_path(path, "config.json") : path;
  if (!env.exists(file)) {
    return Failure{.option = "model",
                   .value = path,
                   .rule = file == path ? "there is no such file or directory" : "the directory has no config.json",
                   .nearest = "give a config.json of Hugging Face, or the directory that holds it"};
  }
  const Result<Json> document = parse_json(env.read_file(file), file);
  if (!document) return document.failure();
  return parse_config(*document, file);
}

Json to_hugging_face(const Config& config) {
  return config.family == Family::kGpt2 ? gpt2_document(config) : llama_document(config);
}

std::string family_name(Family family) { return family == Family::kGpt2 ? "gpt2" : "llama"; }

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
