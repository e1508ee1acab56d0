// Who counts reads what who computes refuses; and what is in people's files.

#include "model/config_reading.h"

#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "base/fake_env.h"
#include "model/config_fields.h"
#include "model/counts.h"
#include "model/parameters.h"

namespace trireme::model {
namespace {

constexpr std::string_view kGpt2 =
    R"({"model_type": "gpt2", "n_embd": 48, "n_layer": 2, "n_head": 4, "vocab_size": 100})";
constexpr std::string_view kLlama = R"({"model_type": "llama", "hidden_size": 64, "intermediate_size": 96,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 100})";

Json with(std::string_view base, std::string_view members) {
  Json document = parse_json(base, "base").or_throw();
  const Json more = parse_json(members, "members").or_throw();
  for (const auto& [name, value] : more.as_object()) document[name] = value;
  return document;
}

// Nothing is refused, and nothing changes.
void expect_passed_over(std::string_view base, std::string_view members) {
  const Json document = with(base, members);
  const Result<Config> config = parse_config(document, "c");
  ASSERT_TRUE(config.ok()) << members << ": " << config.failure().sentence();
  EXPECT_EQ(*config, parse_config(with(base, "{}"), "c").or_throw()) << members;
}

// Counts are those of the model without the members, and computing is refused with this option.
void expect_counted_only(std::string_view base, std::string_view members, std::string_view option) {
  const Json document = with(base, members);
  const Result<ConfigReading> reading = read_config(document, "c");
  ASSERT_TRUE(reading.ok()) << members << ": " << reading.failure().sentence();
  const Config plain = parse_config(with(base, "{}"), "c").or_throw();
  EXPECT_EQ(make_parameter_table(reading->config).total(), make_parameter_table(plain).total()) << members;
  EXPECT_EQ(count_parameters(document, "c").or_throw(), count_parameters(with(base, "{}"), "c").or_throw()) << members;
  ASSERT_FALSE(reading->not_computed.empty()) << members;
  EXPECT_EQ(reading->not_computed.front().option, "c: " + std::string(option)) << members;
  const Result<Config> computed = parse_config(document, "c");
  ASSERT_FALSE(computed.ok()) << members;
  EXPECT_EQ(computed.failure().sentence(), reading->not_computed.front().sentence());
  EXPECT_EQ(computed.failure().code, ExitCode::kUsage);
}

TEST(ConfigReading, AFieldThatIsSwitchedOffSwitchesNothingOn) {
  for (std::string_view base : {kGpt2, kLlama}) {
    for (const char* name :
         {"use_mrope", "something_new", "num_experts", "rope_theta_base", "sliding_window_pattern"}) {
      for (const char* off : {"null", "false", "{}", "[]"}) {
        expect_passed_over(base, "{\"" + std::string(name) + "\": " + off + "}");
      }
      for (const char* on : {"true", "7", "\"on\"", "[1]", "0.5"}) {
        const Result<Config> config = parse_config(with(base, "{\"" + std::string(name) + "\": " + on + "}"), "c");
        ASSERT_FALSE(config.ok()) << name;
        EXPECT_EQ(config.failure().option, "c: " + std::string(name));
      }
    }
  }
}

TEST(ConfigReading, WhereTheDefaultIsOnFalseIsNoBookkeeping) {
  for (std::string_view base : {kGpt2, kLlama}) {
    expect_counted_only(base, R"({"is_causal": false})", "is_causal");
    expect_counted_only(base, R"({"is_causal": null})", "is_causal");  // transformers reads it as false
    expect_passed_over(base, R"({"is_causal": true})");
  }
  expect_counted_only(kGpt2, R"({"scale_attn_weights": false})", "scale_attn_weights");
  EXPECT_FALSE(parse_config(with(kGpt2, R"({"tie_word_embeddings": false})"), "c")->tied_embeddings);
  // A slip of the pen would bring back the default.
  for (const char* name : {"tie_word_embedding", "tie_word_embeddingss", "tie_word_embeddinks", "tie_wordembeddings"}) {
    const Result<Config> config = parse_config(with(kGpt2, "{\"" + std::string(name) + "\": false}"), "c");
    ASSERT_FALSE(config.ok()) << name;
    EXPECT_EQ(config.failure().nearest, "tie_word_embeddings");
  }
}

TEST(ConfigReading, BookkeepingOfOtherProgramsIsPassedOver) {
  for (const char* members :
       {R"({"max_sequence_length": 2048, "pad_token_id": -1})",                   // the first llama's conversions
        R"({"_num_labels": 1, "n_special": 0, "predict_special_tokens": true})",  // distilgpt2
        R"({"use_mrope": false, "max_window_layers": 28})",
        R"({"torch_dtype": "bfloat16", "dtype": "bfloat16", "_pre_quantization_dtype": "bfloat16"})",
        R"({"unsloth_fixed": true, "unsloth_version": "2024.9", "model_name": "x", "_name_or_path": "y/z"})",
        R"({"auto_map": {"AutoTokenizer": ["tokenization_x.XTokenizer", null]}, "transformers_version": "4.30.0"})",
        R"({"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}, "num_labels": 2, "problem_type": null,
               "classifier_dropout": 0.1, "summary_type": "cls_index", "summary_anything": 0.5})",
        R"({"task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50}}})",
        R"({"neuron": {"task": "text-generation"}, "onnx": {"x": 1}, "transformers.js_config": {"dtype": "q4"}})",
        R"({"use_flash_attn": true, "_flash_attn_2_enabled": true, "attn_implementation": "sdpa", "bf16": true})",
        R"({"max_model_len": 4096, "tokenizer_class": "LlamaTokenizer", "cache_implementation": "hybrid"})",
        R"({"quantization_config": null, "rope_interleaved": false, "is_llama_config": true, "_comment": "hello"})",
        R"({"attention_bias": null, "mlp_bias": null, "rope_scaling": {}, "rope_parameters": false})",
        R"({"temperature": 0.6, "top_p": 0.9, "do_sample": true, "eos_token_id": [2]})"}) {
    expect_passed_over(kLlama, members);
  }
  EXPECT_EQ(count_parameters(parse_json(R"({"model_type": "gpt2", "_num_labels": 1, "activation_function": "gelu_new",
      "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_inner": null, "n_layer": 6, "n_positions": 1024,
      "vocab_size": 50257})",
                                        "c")
                                 .or_throw(),
                             "c")
                ->total,
            81'912'576);
}

// As the hub has them.
TEST(ConfigReading, PublishedModelsAreCounted) {
  const std::pair<std::int64_t, std::string_view> models[] = {
      {1'777'088'000, R"({"architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
        "eos_token_id": 151643, "hidden_act": "silu", "hidden_size": 1536, "initializer_range": 0.02,
        "intermediate_size": 8960, "max_position_embeddings": 131072, "max_window_layers": 21, "model_type": "qwen2",
        "num_attention_heads": 12, "num_hidden_layers": 28, "num_key_value_heads": 2, "rms_norm_eps": 1e-06,
        "rope_theta": 10000, "sliding_window": 4096, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
        "transformers_version": "4.44.0", "use_cache": true, "use_mrope": false, "use_sliding_window": false,
        "vocab_size": 151936})"},
      {2'506'172'416, R"({"architectures": ["GemmaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
        "bos_token_id": 2, "eos_token_id": 1, "head_dim": 256, "hidden_act": "gelu", "hidden_activation": null,
        "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 16384, "max_position_embeddings": 8192,
        "model_type": "gemma", "num_attention_heads": 8, "num_hidden_layers": 18, "num_key_value_heads": 1,
        "pad_token_id": 0, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 10000.0,
        "torch_dtype": "bfloat16", "transformers_version": "4.38.0.dev0", "use_cache": true, "vocab_size": 256000})"},
      {12'247'782'400, R"({"architectures": ["MistralForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 1,
        "eos_token_id": 2, "head_dim": 128, "hidden_act": "silu", "hidden_size": 5120, "initializer_range": 0.02,
        "intermediate_size": 14336, "max_position_embeddings": 1024000, "model_type": "mistral",
        "num_attention_heads": 32, "num_hidden_layers": 40, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
        "rope_theta": 1000000.0, "sliding_window": null, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
        "use_cache": true, "vocab_size": 131072})"},
      {6'738'415'616, R"({"architectures": ["LLaMAForCausalLM"], "bos_token_id": 0, "eos_token_id": 1,
        "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 11008, "initializer_range": 0.02,
        "max_sequence_length": 2048, "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32,
        "pad_token_id": -1, "rms_norm_eps": 1e-06, "torch_dtype": "float16", "transformers_version": "4.27.0.dev0",
        "use_cache": true, "vocab_size": 32000})"},
      {6'738'546'688, R"({"_name_or_path": "meta/x", "architectures": ["LlamaForCausalLM"], "bos_token_id": 1,
        "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
        "intermediate_size": 11008, "max_position_embeddings": 16384, "model_type": "llama", "num_attention_heads": 32,
        "num_hidden_layers": 32, "num_key_value_heads": 32, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
        "rope_scaling": null, "rope_theta": 1000000, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
        "unsloth_version": "2024.8", "use_cache": true, "vocab_size": 32016})"},
      {8'030'261'248, R"({"architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
        "bos_token_id": 128000, "eos_token_id": [128001, 128008, 128009], "hidden_act": "silu", "hidden_size": 4096,
        "initializer_range": 0.02, "intermediate_size": 14336, "max_position_embeddings": 131072, "mlp_bias": false,
        "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
        "pretraining_tp": 1, "quantization_config": {"backend": "autoawq", "bits": 4, "do_fuse": false,
        "exllama_config": null, "group_size": 128, "modules_to_not_convert": null, "quant_method": "awq",
        "version": "gemm", "zero_point": true}, "rms_norm_eps": 1e-05, "rope_scaling": {"factor": 8.0,
        "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192,
        "rope_type": "llama3"}, "rope_theta": 500000.0, "tie_word_embeddings": false, "torch_dtype": "float16",
        "transformers_version": "4.42.4", "use_cache": true, "vocab_size": 128256})"}};
  for (const auto& [parameters, text] : models) {
    const Json document = parse_json(text, "c").or_throw();
    const Result<ParameterCounts> counts = count_parameters(document, "c");
    ASSERT_TRUE(counts.ok()) << counts.failure().sentence();
    EXPECT_EQ(counts->total, parameters) << text;
    EXPECT_EQ(parse_config(document, "c").ok(), document.find("quantization_config") == nullptr) << text;
  }
}

TEST(ConfigReading, WhatNoShapeDependsOnIsCountedAndNotComputed) {
  expect_counted_only(kLlama, R"({"rope_scaling": {"type": "yarn", "factor": 4.0}})", "rope_scaling: rope_type");
  expect_counted_only(kLlama, R"({"rope_scaling": {"type": "dynamic", "factor": 2.0}})", "rope_scaling: rope_type");
  expect_counted_only(kLlama, R"({"rope_scaling": {"rope_type": "longrope", "short_factor": [1.0]}})",
                      "rope_scaling: rope_type");
  expect_counted_only(kLlama, R"({"rope_parameters": {"rope_type": "default", "mrope_section": [1, 2, 3]}})",
                      "rope_parameters: mrope_section");
  expect_counted_only(kLlama, R"({"rope_scaling": {"type": "linear"}})", "rope_scaling: factor");
  expect_counted_only(kLlama, R"({"rope_scaling": 2.0})", "rope_scaling");
  expect_counted_only(kLlama, R"({"rope_theta": null})", "rope_theta");
  expect_counted_only(kLlama, R"({"rope_theta": 2e4, "rope_parameters": {"rope_theta": 1e4}})", "rope_theta");
  expect_counted_only(kLlama, R"({"pretraining_tp": 2})", "pretraining_tp");
  expect_counted_only(kLlama, R"({"partial_rotary_factor": 0.5})", "partial_rotary_factor");
  expect_counted_only(kLlama, R"({"quantization_config": {"quant_method": "awq", "bits": 4}})", "quantization_config");
  expect_counted_only(kLlama, R"({"sliding_window": 4096})", "sliding_window");
  expect_counted_only(kLlama, R"({"layer_types": ["full_attention", "sliding_attention"]})", "layer_types");
  expect_counted_only(kLlama, R"({"attn_logit_softcapping": 50.0})", "attn_logit_softcapping");
  expect_counted_only(kLlama, R"({"use_mrope": true})", "use_mrope");
  expect_counted_only(kLlama, R"({"hidden_act": "gelu"})", "hidden_act");
  expect_counted_only(kLlama, R"({"hidden_act": "quick_gelu"})", "hidden_act");
  expect_counted_only(kLlama, R"({"attention_dropout": null})", "attention_dropout");
  expect_counted_only(kLlama, R"({"rms_norm_eps": 0})", "rms_norm_eps");
  expect_counted_only(kLlama, R"({"initializer_range": -1})", "initializer_range");
  expect_counted_only(kLlama, R"({"eos_token_id": "</s>"})", "eos_token_id");
  expect_counted_only(kLlama, R"({"hidden_dropout": 0.1})", "hidden_dropout");
  expect_counted_only(kGpt2, R"({"scale_attn_by_inverse_layer_idx": true})", "scale_attn_by_inverse_layer_idx");
  expect_counted_only(kGpt2, R"({"reorder_and_upcast_attn": true})", "reorder_and_upcast_attn");
  expect_counted_only(kGpt2, R"({"activation_function": "gelu"})", "activation_function");
  expect_counted_only(kGpt2, R"({"attn_pdrop": 1})", "attn_pdrop");
}

TEST(ConfigReading, EveryReasonNotToComputeIsTold) {
  const Json document =
      with(kLlama, R"({"rope_scaling": {"type": "yarn", "factor": 4.0}, "pretraining_tp": 2, "hidden_act": "gelu"})");
  std::vector<std::string> options;
  const ConfigReading reading = read_config(document, "c").or_throw();
  for (const Failure& failure : reading.not_computed) options.push_back(failure.option);
  EXPECT_EQ(options, (std::vector<std::string>{"c: pretraining_tp", "c: hidden_act", "c: rope_scaling: rope_type"}));
}

TEST(ConfigReading, WhatShapesDependOnIsRefusedToAll) {
  for (const char* members :
       {R"({"num_experts": 8})", R"({"q_lora_rank": 64})", R"({"qk_norm": true})", R"({"is_encoder_decoder": true})",
        R"({"add_cross_attention": true})", R"({"pruned_heads": {"0": [1]}})", R"({"something_new": 1})",
        R"({"hidden_size": null})", R"({"num_key_value_heads": 3})", R"({"tie_word_embeddings": 1})"}) {
    EXPECT_FALSE(read_config(with(kLlama, members), "c").ok()) << members;
    EXPECT_FALSE(parse_config(with(kLlama, members), "c").ok()) << members;
  }
}

TEST(ConfigReading, ThetaMayBeInEitherPlace) {
  const auto theta = [](std::string_view members) {
    return parse_config(with(kLlama, members), "c").or_throw().rope_theta;
  };
  EXPECT_EQ(theta(R"({"rope_theta": null, "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}})"), 5e5);
  EXPECT_EQ(theta(R"({"rope_theta": 5e5, "rope_parameters": {"rope_type": "default", "rope_theta": null}})"), 5e5);
  EXPECT_EQ(theta(R"({"rope_parameters": {"rope_type": "default", "rope_theta": null, "factor": null}})"), 1e4);
  EXPECT_EQ(theta(R"({"rope_scaling": {"rope_type": "default", "rope_theta": 5e5},
                      "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}})"),
            5e5);
}

TEST(ConfigReading, OfAFileOrItsDirectory) {
  FakeEnv env;
  env.put_file("/m/config.json", with(kLlama, R"({"rope_scaling": {"type": "yarn", "factor": 4.0}})").dump());
  EXPECT_EQ(load_config_reading(env, "/m")->not_computed.size(), 1U);
  EXPECT_EQ(load_config(env, "/m").failure().option, "/m/config.json: rope_scaling: rope_type");
  EXPECT_FALSE(load_config_reading(env, "/absent").ok());
}

TEST(ConfigReading, MixturesOfExpertsAreReadWithTheSameBookkeeping) {
  const Json plain = parse_json(R"({"model_type": "mixtral", "hidden_size": 64, "intermediate_size": 96,
      "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100})",
                                "c")
                         .or_throw();
  Json more = plain;
  for (const char* name : {"_num_labels", "max_sequence_length", "unsloth_fixed"}) more[name] = 1;
  more["use_mrope"] = false;
  EXPECT_EQ(count_parameters(more, "c").or_throw(), count_parameters(plain, "c").or_throw());
  more["something_new"] = true;
  EXPECT_FALSE(count_parameters(more, "c").ok());
  Json misspelt = plain;
  misspelt["num_local_expert"] = nullptr;
  EXPECT_EQ(count_parameters(misspelt, "c").failure().nearest, "num_local_experts");
}

}  // namespace
}  // namespace trireme::model
