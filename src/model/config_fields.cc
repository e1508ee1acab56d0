#include "model/config_fields.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "base/check.h"

namespace trireme::model {
namespace {

constexpr std::array kGpt2Fields = std::to_array<std::string_view>({
    "model_type",
    "vocab_size",
    "n_positions",
    "n_ctx",
    "n_embd",
    "n_layer",
    "n_head",
    "n_inner",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "max_position_embeddings",
    "activation_function",
    "layer_norm_epsilon",
    "embd_pdrop",
    "attn_pdrop",
    "resid_pdrop",
    "initializer_range",
    "tie_word_embeddings",
    "bos_token_id",
    "eos_token_id",
});

// Read in every family but gpt2.
constexpr std::array kRotaryFields = std::to_array<std::string_view>({
    "model_type",          "vocab_size",        "hidden_size",
    "intermediate_size",   "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "head_dim",          "max_position_embeddings",
    "rms_norm_eps",        "rope_theta",        "rope_scaling",
    "rope_parameters",     "hidden_act",        "attention_dropout",
    "initializer_range",   "layer_types",       "tie_word_embeddings",
    "bos_token_id",        "eos_token_id",
});

template <std::size_t A, std::size_t B, typename T>
constexpr std::array<T, A + B> joined(const std::array<T, A>& first, const std::array<T, B>& second) {
  std::array<T, A + B> all{};
  for (std::size_t i = 0; i < A; ++i) all[i] = first[i];
  for (std::size_t i = 0; i < B; ++i) all[A + i] = second[i];
  return all;
}

using Name = std::string_view;
constexpr std::array kLlamaFields = joined(kRotaryFields, std::to_array<Name>({"attention_bias", "mlp_bias"}));
constexpr std::array kMistralFields = joined(kRotaryFields, std::to_array<Name>({"sliding_window"}));
constexpr std::array kQwen2Fields =
    joined(kMistralFields, std::to_array<Name>({"use_sliding_window", "max_window_layers"}));
constexpr std::array kQwen3Fields = joined(kQwen2Fields, std::to_array<Name>({"attention_bias"}));
constexpr std::array kPhi3Fields =
    joined(kMistralFields, std::to_array<Name>({"resid_pdrop", "original_max_position_embeddings"}));
constexpr std::array kGemmaFields = joined(kRotaryFields, std::to_array<Name>({"attention_bias", "hidden_activation"}));

constexpr Changes kShapes = Changes::kShapes;
constexpr Changes kArithmetic = Changes::kArithmetic;

constexpr std::string_view kNoEncoder = "encoder-decoder models are not implemented";
constexpr std::string_view kNoCross = "cross-attention is not implemented";
constexpr std::array kFixed = std::to_array<FixedField>({
    {"is_encoder_decoder", "false", true, kShapes, kNoEncoder},
    {"add_cross_attention", "false", true, kShapes, kNoCross},
    {"is_causal", "true", false, kArithmetic, "attention to later tokens is not implemented"},
    {"use_parallel_residual", "false", true, kArithmetic, "attention and MLP side by side are not implemented"},
});

constexpr std::array kGpt2Fixed = joined(
    kFixed,
    std::to_array<FixedField>(
        {{"scale_attn_weights", "true", false, kArithmetic, "attention scores are always scaled by 1 / sqrt(head_dim)"},
         {"scale_attn_by_inverse_layer_idx", "false", true, kArithmetic,
          "scaling attention by the layer's index is not implemented"},
         {"reorder_and_upcast_attn", "false", true, kArithmetic, "reordered attention is not implemented"}}));

constexpr std::string_view kNoDropout = "the family has no such dropout";
constexpr std::array kAnyRotaryFixed = joined(
    kFixed,
    std::to_array<FixedField>(
        {{"pretraining_tp", "1", true, kArithmetic, "projections in slices (pretraining_tp) are not implemented"},
         {"partial_rotary_factor", "1.0", true, kArithmetic,
          "rotary embeddings of a part of a head are not implemented"},
         {"rotary_pct", "1.0", true, kArithmetic, "rotary embeddings of a part of a head are not implemented"},
         {"rope_interleaved", "false", true, kArithmetic,
          "rotary pairs are the two halves of a head, never neighbours"},
         {"use_mrope", "false", true, kArithmetic, "rotary embeddings of images and time are not implemented"},
         {"embd_pdrop", "0.0", true, kArithmetic, kNoDropout},
         {"attn_pdrop", "0.0", true, kArithmetic, kNoDropout},
         {"hidden_dropout", "0.0", true, kArithmetic, kNoDropout},
         {"hidden_dropout_prob", "0.0", true, kArithmetic, kNoDropout}}));

constexpr std::array kRotaryFixed =
    joined(kAnyRotaryFixed, std::to_array<FixedField>({{"resid_pdrop", "0.0", true, kArithmetic, kNoDropout}}));

constexpr std::string_view kNoBias = "the family has no such bias";
constexpr std::string_view kAlwaysBias = "the family has biases on query, key and value, and on nothing else";
constexpr std::array kNoMlpBias = std::to_array<FixedField>({{"mlp_bias", "false", true, kShapes, kNoBias}});
constexpr std::array kNoBiases =
    joined(kNoMlpBias, std::to_array<FixedField>({{"attention_bias", "false", true, kShapes, kNoBias}}));
constexpr std::array kMistralFixed = joined(kRotaryFixed, kNoBiases);
constexpr std::array kPhi3Fixed = joined(kAnyRotaryFixed, kNoBiases);
constexpr std::array kQwen2Fixed =
    joined(joined(kRotaryFixed, kNoMlpBias),
           std::to_array<FixedField>({{"attention_bias", "true", true, kShapes, kAlwaysBias}}));
constexpr std::array kQwen3Fixed = joined(kRotaryFixed, kNoMlpBias);
constexpr std::array kOlmo2Fixed =
    joined(kQwen3Fixed, std::to_array<FixedField>({{"attention_bias", "false", true, kShapes,
                                                    "a bias between a projection and its norm is not implemented"}}));
constexpr std::array kGemmaFixed =
    joined(kQwen3Fixed, std::to_array<FixedField>({{"use_bidirectional_attention", "false", true, kArithmetic,
                                                    "attention to later tokens is not implemented"}}));

constexpr std::string_view kNoExperts = "mixture-of-experts models are not implemented";
constexpr std::string_view kNoWindow = "sliding-window attention is not implemented";
constexpr std::string_view kNoChunks = "chunked attention is not implemented";
constexpr std::string_view kNoLatent = "multi-head latent attention is not implemented";
constexpr std::string_view kNoSoftcap = "soft caps on logits are not implemented";
constexpr std::string_view kNoMultiplier = "scaled embeddings, residuals and logits are not implemented";
constexpr std::string_view kNoQkNorm = "norms on queries and keys are not implemented";
constexpr std::string_view kNoQuantization = "quantized weights cannot be trained";

constexpr std::array kForeign = std::to_array<ForeignField>({
    {"quantization_config", kArithmetic, kNoQuantization},
    {"quantization", kArithmetic, kNoQuantization},
    {"compression_config", kArithmetic, kNoQuantization},
    {"sparsity_config", kArithmetic, kNoQuantization},
    {"sliding_window", kArithmetic, kNoWindow},
    {"use_sliding_window", kArithmetic, kNoWindow},
    {"sliding_window_pattern", kArithmetic, kNoWindow},
    {"attention_chunk_size", kArithmetic, kNoChunks},
    {"dual_chunk_attention_config", kArithmetic, kNoChunks},
    {"num_local_experts", kShapes, kNoExperts},
    {"num_experts", kShapes, kNoExperts},
    {"num_experts_per_tok", kShapes, kNoExperts},
    {"n_routed_experts", kShapes, kNoExperts},
    {"n_shared_experts", kShapes, kNoExperts},
    {"moe_intermediate_size", kShapes, kNoExperts},
    {"router_aux_loss_coef", kShapes, kNoExperts},
    {"q_lora_rank", kShapes, kNoLatent},
    {"kv_lora_rank", kShapes, kNoLatent},
    {"attn_logit_softcapping", kArithmetic, kNoSoftcap},
    {"final_logit_softcapping", kArithmetic, kNoSoftcap},
    {"query_pre_attn_scalar", kArithmetic, "attention scores are always scaled by 1 / sqrt(head_dim)"},
    {"scale_emb", kArithmetic, kNoMultiplier},
    {"scale_depth", kArithmetic, kNoMultiplier},
    {"dim_model_base", kArithmetic, kNoMultiplier},
    {"embedding_multiplier", kArithmetic, kNoMultiplier},
    {"residual_multiplier", kArithmetic, kNoMultiplier},
    {"attention_multiplier", kArithmetic, kNoMultiplier},
    {"logits_scaling", kArithmetic, kNoMultiplier},
    {"logit_scale", kArithmetic, kNoMultiplier},
    {"qk_norm", kShapes, kNoQkNorm},
    {"use_qk_norm", kShapes, kNoQkNorm},
    {"qk_layernorm", kShapes, kNoQkNorm},
    {"original_max_position_embeddings", kArithmetic, "the context that rotary scaling starts from is rope_scaling's"},
    {"rope_local_base_freq", kArithmetic, "rotary embeddings of two kinds are not implemented"},
    {"no_rope_layers", kArithmetic, "layers without rotary embeddings are not implemented"},
    {"alibi", kArithmetic, "position biases on attention scores are not implemented"},
    {"pruned_heads", kShapes, "pruned heads are not implemented"},
    {"cross_attention_hidden_size", kShapes, kNoCross},
});

}  // namespace

std::span<const std::string_view> read_fields(Family family) {
  switch (family) {
    case Family::kGpt2:
      return kGpt2Fields;
    case Family::kLlama:
      return kLlamaFields;
    case Family::kMistral:
      return kMistralFields;
    case Family::kQwen2:
      return kQwen2Fields;
    case Family::kQwen3:
      return kQwen3Fields;
    case Family::kGemma:
      return kGemmaFields;
    case Family::kOlmo2:
      return kRotaryFields;
    case Family::kPhi3:
      return kPhi3Fields;
  }
  TRIREME_CHECK(false, "family {}", static_cast<int>(family));
}

std::span<const FixedField> fixed_fields(Family family) {
  switch (family) {
    case Family::kGpt2:
      return kGpt2Fixed;
    case Family::kLlama:
      return kRotaryFixed;
    case Family::kMistral:
      return kMistralFixed;
    case Family::kQwen2:
      return kQwen2Fixed;
    case Family::kQwen3:
      return kQwen3Fixed;
    case Family::kGemma:
      return kGemmaFixed;
    case Family::kOlmo2:
      return kOlmo2Fixed;
    case Family::kPhi3:
      return kPhi3Fixed;
  }
  TRIREME_CHECK(false, "family {}", static_cast<int>(family));
}

std::span<const ForeignField> foreign_fields() { return kForeign; }

bool is_legal(const FixedField& field, const Json& value) {
  if (value.is_null()) return field.null_is_legal;
  if (is_switched_off(value)) return field.legal == "false";
  if (value.is_bool()) return field.legal == (value.as_bool() ? "true" : "false");
  if (!value.is_number() || field.legal == "true" || field.legal == "false") return false;
  return value.as_number() == std::strtod(std::string(field.legal).c_str(), nullptr);
}

bool is_switched_off(const Json& value) {
  if (value.is_null()) return true;
  if (value.is_bool()) return !value.as_bool();
  if (value.is_object()) return value.as_object().empty();
  return value.is_array() && value.as_array().empty();
}

std::vector<std::string> fields_that_count(Family family) {
  std::vector<std::string> names;
  for (std::string_view name : read_fields(family)) names.emplace_back(name);
  for (const FixedField& field : fixed_fields(family)) names.emplace_back(field.name);
  return names;
}

std::vector<std::string> known_fields(Family family) {
  std::vector<std::string> names = fields_that_count(family);
  const auto counting = static_cast<std::ptrdiff_t>(names.size());
  for (const PassedOverFields& fields : passed_over_fields()) {
    for (std::string_view name : fields.names) {
      if (std::find(names.begin(), names.begin() + counting, name) == names.begin() + counting) {
        names.emplace_back(name);
      }
    }
  }
  return names;
}

std::string misspelt_field(std::string_view name, const std::vector<std::string>& fields) {
  // A letter put in, left out or replaced: what the two begin and end with is all but one letter of the longer.
  for (const std::string& field : fields) {
    const auto shorter = std::min(name.size(), field.size());
    const auto longer = std::max(name.size(), field.size());
    const auto front = static_cast<std::size_t>(std::ranges::mismatch(name, field).in1 - name.begin());
    std::size_t back = 0;
    while (back < shorter - front && name[name.size() - 1 - back] == field[field.size() - 1 - back]) ++back;
    if (front + back + 1 == longer) return field;
  }
  return "";
}

}  // namespace trireme::model
