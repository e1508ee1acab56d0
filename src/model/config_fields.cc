#include "model/config_fields.h"

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
    "model_type",
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "max_position_embeddings",
    "rms_norm_eps",
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "hidden_act",
    "attention_dropout",
    "initializer_range",
    "tie_word_embeddings",
    "bos_token_id",
    "eos_token_id",
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
    joined(kMistralFields, std::to_array<Name>({"use_sliding_window", "max_window_layers", "layer_types"}));
constexpr std::array kQwen3Fields = joined(kQwen2Fields, std::to_array<Name>({"attention_bias"}));
constexpr std::array kGemmaFields = joined(kRotaryFields, std::to_array<Name>({"attention_bias", "hidden_activation"}));

// Book-keeping, generation settings and heads of other tasks.
constexpr std::array kPassedOver = std::to_array<std::string_view>({
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_name_or_path",
    "architectures",
    "bad_words_ids",
    "begin_suppress_tokens",
    "chunk_size_feed_forward",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "dtype",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "gradient_checkpointing",
    "id2label",
    "is_decoder",
    "is_llama_config",
    "label2id",
    "length_penalty",
    "max_length",
    "min_length",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_labels",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_past",
    "output_scores",
    "pad_token_id",
    "prefix",
    "problem_type",
    "remove_invalid_values",
    "repetition_penalty",
    "return_dict",
    "return_dict_in_generate",
    "sep_token_id",
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tie_encoder_decoder",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "transformers.js_config",
    "transformers_version",
    "typical_p",
    "unsloth_version",
    "use_bfloat16",
    "use_cache",
});

constexpr std::array kGpt2Fixed = std::to_array<FixedField>({
    {"scale_attn_weights", "true", false, "attention scores are always scaled by 1 / sqrt(head_dim)"},
    {"scale_attn_by_inverse_layer_idx", "false", true, "scaling attention by the layer's index is not implemented"},
    {"reorder_and_upcast_attn", "false", true, "reordered attention is not implemented"},
    {"add_cross_attention", "false", true, "cross-attention is not implemented"},
    {"is_encoder_decoder", "false", true, "encoder-decoder models are not implemented"},
});

constexpr std::array kLlamaFixed = std::to_array<FixedField>({
    {"pretraining_tp", "1", true, "projections in slices (pretraining_tp) are not implemented"},
    {"partial_rotary_factor", "1.0", true, "rotary embeddings of a part of a head are not implemented"},
    {"rope_interleaved", "false", true, "rotary pairs are the two halves of a head, never neighbours"},
    {"is_encoder_decoder", "false", true, "encoder-decoder models are not implemented"},
});

constexpr std::string_view kNoBias = "the family has no such bias";
constexpr std::string_view kAlwaysBias = "the family has biases on query, key and value, and on nothing else";
constexpr std::array kNoMlpBias = std::to_array<FixedField>({{"mlp_bias", "false", true, kNoBias}});
constexpr std::array kMistralFixed =
    joined(joined(kLlamaFixed, kNoMlpBias), std::to_array<FixedField>({{"attention_bias", "false", true, kNoBias}}));
constexpr std::array kQwen2Fixed =
    joined(joined(kLlamaFixed, kNoMlpBias), std::to_array<FixedField>({{"attention_bias", "true", true, kAlwaysBias}}));
constexpr std::array kQwen3Fixed = joined(kLlamaFixed, kNoMlpBias);
constexpr std::array kGemmaFixed = joined(
    kQwen3Fixed, std::to_array<FixedField>(
                     {{"use_bidirectional_attention", "false", true, "attention to later tokens is not implemented"}}));

constexpr std::string_view kNoExperts = "mixture-of-experts models are not implemented";
constexpr std::string_view kNoWindow = "sliding-window attention is not implemented";
constexpr std::string_view kNoLatent = "multi-head latent attention is not implemented";
constexpr std::string_view kNoSoftcap = "soft caps on logits are not implemented";
constexpr std::string_view kNoMultiplier = "scaled embeddings, residuals and logits are not implemented";
constexpr std::string_view kNoQkNorm = "norms on queries and keys are not implemented";
constexpr std::string_view kNoQuantization = "quantized weights cannot be trained";

constexpr std::array kForeign = std::to_array<ForeignField>({
    {"quantization_config", kNoQuantization},
    {"compression_config", kNoQuantization},
    {"sliding_window", kNoWindow},
    {"use_sliding_window", kNoWindow},
    {"attention_chunk_size", "chunked attention is not implemented"},
    {"num_local_experts", kNoExperts},
    {"num_experts", kNoExperts},
    {"num_experts_per_tok", kNoExperts},
    {"n_routed_experts", kNoExperts},
    {"n_shared_experts", kNoExperts},
    {"moe_intermediate_size", kNoExperts},
    {"router_aux_loss_coef", kNoExperts},
    {"q_lora_rank", kNoLatent},
    {"kv_lora_rank", kNoLatent},
    {"attn_logit_softcapping", kNoSoftcap},
    {"final_logit_softcapping", kNoSoftcap},
    {"embedding_multiplier", kNoMultiplier},
    {"residual_multiplier", kNoMultiplier},
    {"attention_multiplier", kNoMultiplier},
    {"logits_scaling", kNoMultiplier},
    {"logit_scale", kNoMultiplier},
    {"qk_norm", kNoQkNorm},
    {"use_qk_norm", kNoQkNorm},
    {"qk_layernorm", kNoQkNorm},
    {"no_rope_layers", "layers without rotary embeddings are not implemented"},
    {"alibi", "position biases on attention scores are not implemented"},
    {"pruned_heads", "pruned heads are not implemented"},
    {"cross_attention_hidden_size", "cross-attention is not implemented"},
    {"auto_map", "the model names code of its own, which may compute something else"},
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
  }
  TRIREME_CHECK(false, "family {}", static_cast<int>(family));
}

std::span<const std::string_view> passed_over_fields() { return kPassedOver; }

std::span<const FixedField> fixed_fields(Family family) {
  switch (family) {
    case Family::kGpt2:
      return kGpt2Fixed;
    case Family::kLlama:
      return kLlamaFixed;
    case Family::kMistral:
      return kMistralFixed;
    case Family::kQwen2:
      return kQwen2Fixed;
    case Family::kQwen3:
      return kQwen3Fixed;
    case Family::kGemma:
      return kGemmaFixed;
  }
  TRIREME_CHECK(false, "family {}", static_cast<int>(family));
}

std::span<const ForeignField> foreign_fields() { return kForeign; }

bool is_legal(const FixedField& field, const Json& value) {
  if (value.is_null()) return field.null_is_legal;
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

std::vector<std::string> known_fields(Family family) {
  std::vector<std::string> names;
  for (std::string_view name : read_fields(family)) names.emplace_back(name);
  for (const FixedField& field : fixed_fields(family)) names.emplace_back(field.name);
  for (std::string_view name : passed_over_fields()) names.emplace_back(name);
  return names;
}

}  // namespace trireme::model
