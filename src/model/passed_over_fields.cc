#include <algorithm>
#include <array>

#include "model/config_fields.h"

namespace trireme::model {
namespace {

using Name = std::string_view;

// clang-format off
constexpr std::array kBookkeeping = std::to_array<Name>({
    "adapter_path", "architectures", "author", "auto_map", "base_model", "base_model_name_or_path", "description",
    "finetuning_task", "is_llama_config", "license", "model_name", "model_name_or_path", "n_special", "name_or_path",
    "pad_vocab_size_multiple", "parent_model", "predict_special_tokens", "task_specific_params", "tokenizer_class",
    "tokenizer_name", "tokenizer_path", "transformers_version", "vocab_size_unpadded",
});
// "_": private attributes of transformers' classes, and comments.
constexpr std::array kBookkeepingPrefixes = std::to_array<Name>({"_", "unsloth_"});

constexpr std::array kLengths = std::to_array<Name>({
    "max_model_len", "max_seq_len", "max_seq_length", "max_sequence_length", "model_max_length", "original_seq_length",
    "seq_len", "seq_length",
});

constexpr std::array kExecution = std::to_array<Name>({
    "attn_implementation", "bf16", "chunk_size_feed_forward", "dtype", "experts_implementation", "flash_attention",
    "fp16", "fp32", "gradient_checkpointing", "gradient_checkpointing_kwargs", "is_parallel", "tensor_parallel_size",
    "torch_dtype", "torchscript", "tp_size", "transformers_weights", "use_bfloat16", "use_cache", "use_flash_attention",
    "use_flash_attention_2", "use_flash_attn", "use_fused_rope", "use_liger_kernel", "use_return_dict", "use_sdpa",
});
constexpr std::array kExecutionPrefixes = std::to_array<Name>({"neuron", "onnx", "transformers.js"});

constexpr std::array kOutputs = std::to_array<Name>({
    "output_attentions", "output_hidden_states", "output_logits", "output_past", "output_scores", "return_dict",
    "return_dict_in_generate", "tf_legacy_loss", "keys_to_ignore_at_inference",
});

constexpr std::array kGeneration = std::to_array<Name>({
    "assistant_confidence_threshold", "assistant_early_exit", "assistant_ensemble_weight", "assistant_lookbehind",
    "bad_words_ids", "begin_suppress_tokens", "cache_config", "cache_implementation", "compile_config", "constraints",
    "continuous_batching_config", "custom_pipelines", "decoder_start_token_id", "disable_compile", "diversity_penalty",
    "do_sample", "dola_layers", "early_stopping", "encoder_no_repeat_ngram_size", "encoder_repetition_penalty",
    "epsilon_cutoff", "eta_cutoff", "exponential_decay_length_penalty", "force_words_ids", "forced_bos_token_id",
    "forced_decoder_ids", "forced_eos_token_id", "generation_config", "guidance_scale", "is_assistant",
    "length_penalty", "low_memory", "max_cache_len", "max_length", "max_matching_ngram_size", "max_new_tokens",
    "max_time", "min_length", "min_new_tokens", "min_p", "no_repeat_ngram_size", "num_assistant_tokens",
    "num_assistant_tokens_schedule", "num_beam_groups", "num_beams", "num_return_sequences", "penalty_alpha",
    "prefill_chunk_size", "prefix", "prompt_lookup_num_tokens", "remove_invalid_values", "renormalize_logits",
    "repetition_penalty", "return_legacy_cache", "sequence_bias", "speculation_type", "stop_strings",
    "suppress_tokens", "target_lookbehind", "temperature", "token_healing", "top_h", "top_k",
    "top_p", "typical_p", "use_mtp", "watermarking_config",
});

constexpr std::array kTokens = std::to_array<Name>({
    "additional_special_tokens", "bos_token", "chat_template", "cls_token_id", "eos_token", "mask_token_id",
    "pad_token", "pad_token_id", "padding_side", "sep_token_id", "unk_token", "unk_token_id",
});

// Which heads of other tasks, what they are called; and what speaks of an encoder that is not there.
constexpr std::array kOtherTasks = std::to_array<Name>({
    "classifier_dropout", "id2label", "is_decoder", "label2id", "num_labels", "problem_type", "tie_encoder_decoder",
});
constexpr std::array kOtherTaskPrefixes = std::to_array<Name>({"summary_"});

// Read where a family has windows of its own.
constexpr std::array kWindow = std::to_array<Name>({"max_window_layers"});

constexpr std::array kFields = std::to_array<PassedOverFields>({
    {"book-keeping of the program that wrote the file", kBookkeeping, kBookkeepingPrefixes},
    {"a length that a launcher or a trainer chose; positions are max_position_embeddings", kLengths},
    {"how, and in which type, another program computes", kExecution, kExecutionPrefixes},
    {"what another program gives back", kOutputs},
    {"a setting of generation", kGeneration},
    {"what the tokenizer does with a token", kTokens},
    {"where a window begins; a window itself is refused by its own name", kWindow},
    {"of heads for other tasks than the next token", kOtherTasks, kOtherTaskPrefixes},
});
// clang-format on

}  // namespace

std::span<const PassedOverFields> passed_over_fields() { return kFields; }

std::optional<std::string_view> reason_to_pass_over(std::string_view name) {
  for (const PassedOverFields& fields : kFields) {
    const bool named = std::ranges::find(fields.names, name) != fields.names.end();
    if (named || std::ranges::any_of(fields.prefixes, [&](Name prefix) { return name.starts_with(prefix); })) {
      return fields.reason;
    }
  }
  return std::nullopt;
}

}  // namespace trireme::model
