#include "model/counts.h"

#include <limits>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "model/config.h"

namespace trireme::model {
namespace {

Json document(std::string_view text) { return parse_json(text, "config.json").or_throw(); }

// The members of `text` and those of `more` (its own win): what most published files share is written once.
Json with(Json base, std::string_view more) {
  const Json members = document(more);
  for (const auto& [name, value] : members.as_object()) base[name] = value;
  return base;
}

Json llama(std::string_view sizes) {
  return with(document(R"({"model_type": "llama", "hidden_act": "silu", "rms_norm_eps": 1e-05,
    "tie_word_embeddings": false, "max_position_embeddings": 4096})"),
              sizes);
}

constexpr std::string_view kMixtral8x7b = R"({"architectures": ["MixtralForCausalLM"], "attention_dropout": 0.0,
  "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
  "intermediate_size": 14336, "max_position_embeddings": 32768, "model_type": "mixtral", "num_attention_heads": 32,
  "num_experts_per_tok": 2, "num_hidden_layers": 32, "num_key_value_heads": 8, "num_local_experts": 8,
  "output_router_logits": false, "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "router_aux_loss_coef": 0.02,
  "sliding_window": null, "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.36.0",
  "use_cache": true, "vocab_size": 32000})";

constexpr std::string_view kQwen30bA3b = R"({"architectures": ["Qwen3MoeForCausalLM"], "attention_bias": false,
  "attention_dropout": 0.0, "bos_token_id": 151643, "decoder_sparse_step": 1, "eos_token_id": 151645, "head_dim": 128,
  "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 6144,
  "max_position_embeddings": 40960, "max_window_layers": 48, "mlp_only_layers": [], "model_type": "qwen3_moe",
  "moe_intermediate_size": 768, "norm_topk_prob": true, "num_attention_heads": 32, "num_experts": 128,
  "num_experts_per_tok": 8, "num_hidden_layers": 48, "num_key_value_heads": 4, "output_router_logits": false,
  "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000.0, "router_aux_loss_coef": 0.001,
  "sliding_window": null, "tie_word_embeddings": false, "torch_dtype": "bfloat16", "use_cache": true,
  "use_sliding_window": false, "vocab_size": 151936})";

constexpr std::string_view kDeepseekV3 = R"({"architectures": ["DeepseekV3ForCausalLM"], "attention_bias": false,
  "attention_dropout": 0.0, "auto_map": {"AutoConfig": "configuration_deepseek.DeepseekV3Config"},
  "aux_loss_alpha": 0.001, "bos_token_id": 0, "eos_token_id": 1, "ep_size": 1, "first_k_dense_replace": 3,
  "hidden_act": "silu", "hidden_size": 7168, "initializer_range": 0.02, "intermediate_size": 18432, "kv_lora_rank": 512,
  "max_position_embeddings": 163840, "model_type": "deepseek_v3", "moe_intermediate_size": 2048, "moe_layer_freq": 1,
  "n_group": 8, "n_routed_experts": 256, "n_shared_experts": 1, "norm_topk_prob": true, "num_attention_heads": 128,
  "num_experts_per_tok": 8, "num_hidden_layers": 61, "num_key_value_heads": 128, "num_nextn_predict_layers": 1,
  "pretraining_tp": 1, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
  "quantization_config": {"fmt": "e4m3", "quant_method": "fp8"}, "rms_norm_eps": 1e-06,
  "rope_scaling": {"factor": 40, "type": "yarn"}, "rope_theta": 10000, "routed_scaling_factor": 2.5,
  "scoring_func": "sigmoid", "seq_aux": true, "tie_word_embeddings": false, "topk_group": 4, "topk_method": "noaux_tc",
  "torch_dtype": "bfloat16", "transformers_version": "4.33.1", "use_cache": true, "v_head_dim": 128,
  "vocab_size": 129280})";

ParameterCounts counts(const Json& config) { return count_parameters(config, "config.json").or_throw(); }
// Of a dense model, where all parameters are active.
std::int64_t dense(const Json& config) {
  const ParameterCounts found = counts(config);
  EXPECT_EQ(found.active, found.total);
  EXPECT_EQ(found.routed_experts, 0);
  EXPECT_FALSE(is_mixture_of_experts(config));
  return found.total;
}
std::string refusal(const Json& config) {
  const Result<ParameterCounts> found = count_parameters(config, "config.json");
  if (found) return "accepted";
  EXPECT_EQ(found.failure().code, ExitCode::kUsage);
  return found.failure().sentence();
}

TEST(CountsTest, Gpt2) {
  EXPECT_EQ(dense(document(R"({"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "n_positions": 1024,
    "n_ctx": 1024, "vocab_size": 50257, "layer_norm_epsilon": 1e-05, "activation_function": "gelu_new"})")),
            124'439'808);
  EXPECT_EQ(dense(document(R"({"model_type": "gpt2", "n_layer": 48, "n_embd": 1600, "n_head": 25, "n_positions": 1024,
    "n_ctx": 1024, "vocab_size": 50257, "layer_norm_epsilon": 1e-05, "activation_function": "gelu_new"})")),
            1'557'611'200);
}

TEST(CountsTest, Llama) {
  EXPECT_EQ(dense(llama(R"({"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 32000})")),
            6'738'415'616);
  EXPECT_EQ(dense(llama(R"({"hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80,
    "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 32000})")),
            68'976'648'192);
  EXPECT_EQ(dense(llama(R"({"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256})")),
            8'030'261'248);
  EXPECT_EQ(dense(llama(R"({"hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80,
    "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 128256})")),
            70'553'706'496);
  EXPECT_EQ(dense(llama(R"({"hidden_size": 16384, "intermediate_size": 53248, "num_hidden_layers": 126,
    "num_attention_heads": 128, "num_key_value_heads": 8, "vocab_size": 128256})")),
            405'853'388'800);
  EXPECT_EQ(dense(llama(R"({"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "head_dim": 64,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "tie_word_embeddings": true})")),
            1'235'814'400);
  EXPECT_EQ(dense(llama(R"({"hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 22,
    "num_attention_heads": 32, "num_key_value_heads": 4, "vocab_size": 32000})")),
            1'100'048'384);
}

TEST(CountsTest, MistralQwenAndGemma) {
  EXPECT_EQ(dense(document(R"({"model_type": "mistral", "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000,
    "sliding_window": 4096, "rms_norm_eps": 1e-05})")),
            7'241'732'096);
  EXPECT_EQ(dense(document(R"({"model_type": "qwen2", "hidden_size": 896, "intermediate_size": 4864,
    "max_window_layers": 21, "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2,
    "sliding_window": 32768, "tie_word_embeddings": true, "use_sliding_window": false, "vocab_size": 151936})")),
            494'032'768);
  EXPECT_EQ(dense(document(R"({"model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944,
    "max_window_layers": 28, "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4,
    "sliding_window": 131072, "tie_word_embeddings": false, "use_sliding_window": false, "vocab_size": 152064})")),
            7'615'616'512);
  EXPECT_EQ(dense(document(R"({"model_type": "qwen3", "attention_bias": false, "head_dim": 128, "hidden_size": 4096,
    "intermediate_size": 12288, "max_window_layers": 36, "num_hidden_layers": 36, "num_attention_heads": 32,
    "num_key_value_heads": 8, "sliding_window": null, "use_sliding_window": false, "vocab_size": 151936})")),
            8'190'735'360);
  EXPECT_EQ(dense(document(R"({"model_type": "gemma", "attention_bias": false, "head_dim": 256, "hidden_act": "gelu",
    "hidden_size": 2048, "intermediate_size": 16384, "num_hidden_layers": 18, "num_attention_heads": 8,
    "num_key_value_heads": 1, "vocab_size": 256000})")),
            2'506'172'416);
}

TEST(CountsTest, Mixtral) {
  const ParameterCounts small = counts(document(kMixtral8x7b));
  EXPECT_EQ(small.total, 46'702'792'704);
  EXPECT_EQ(small.embedding, 32000 * 4096);
  EXPECT_EQ(small.routed_experts, 32LL * 8 * 3 * 4096 * 14336);
  EXPECT_EQ(small.active, small.total - small.routed_experts / 8 * 6);
  EXPECT_EQ(small.corrections, 0);
  EXPECT_EQ(counts(with(document(kMixtral8x7b), R"({"hidden_size": 6144, "intermediate_size": 16384,
    "num_hidden_layers": 56, "num_attention_heads": 48, "vocab_size": 32768})"))
                .total,
            140'630'071'296);
}

TEST(CountsTest, Qwen3Moe) {
  const ParameterCounts found = counts(document(kQwen30bA3b));
  EXPECT_EQ(found.total, 30'532'122'624);
  EXPECT_EQ(found.active, found.total - 48LL * 120 * 3 * 2048 * 768);

  // Every second layer dense, and layer 1 too: 23 layers keep their experts.
  const ParameterCounts mixed =
      counts(with(document(kQwen30bA3b), R"({"decoder_sparse_step": 2, "mlp_only_layers": [1, 2]})"));
  const std::int64_t expert_layer = 128LL * 3 * 2048 * 768 + 2048 * 128;
  EXPECT_EQ(mixed.total, found.total - 25 * (expert_layer - 3LL * 2048 * 6144));
  EXPECT_EQ(counts(with(document(kQwen30bA3b), R"({"attention_bias": true})")).total,
            found.total + 48LL * (32 * 128 + 2 * 4 * 128 + 2048));
  EXPECT_EQ(counts(with(document(kQwen30bA3b), R"({"tie_word_embeddings": true})")).total,
            found.total - found.embedding);
}

TEST(CountsTest, DeepseekV3) {
  const ParameterCounts found = counts(document(kDeepseekV3));
  EXPECT_EQ(found.total, 671'026'419'200);
  EXPECT_EQ(found.corrections, 14'848);
  EXPECT_EQ(found.active, 37'552'297'472);  // 37.55e9
  EXPECT_EQ(found.active - found.embedding, 36'625'618'432);

  // Queries straight from the input, and no shared expert.
  const std::int64_t heads_width = 128LL * (128 + 64);
  EXPECT_EQ(counts(with(document(kDeepseekV3), R"({"q_lora_rank": null})")).total,
            found.total - 61 * (7168LL * 1536 + 1536 + 1536 * heads_width - 7168 * heads_width));
  EXPECT_EQ(counts(with(document(kDeepseekV3), R"({"n_shared_experts": null})")).total,
            found.total - 58LL * 3 * 7168 * 2048);
  EXPECT_EQ(counts(with(document(kDeepseekV3), R"({"attention_bias": true})")).total,
            found.total + 61 * (1536 + 512 + 64 + 7168));
  // Layers 4, 6, ..., 60 alone: 29 of 58.
  EXPECT_EQ(counts(with(document(kDeepseekV3), R"({"moe_layer_freq": 2})")).corrections, 14'848 / 2);
}

TEST(CountsTest, AbsentFieldsTakeHuggingFacesDefaults) {
  const auto without = [](Json config, std::initializer_list<std::string_view> names) {
    for (const std::string_view name : names) {
      std::erase_if(config.as_object(), [&](const Json::Member& member) { return member.first == name; });
    }
    return config;
  };
  EXPECT_EQ(
      counts(without(document(kMixtral8x7b), {"num_local_experts", "num_experts_per_tok", "num_key_value_heads"})),
      counts(document(kMixtral8x7b)));
  EXPECT_EQ(counts(without(document(kQwen30bA3b), {"num_experts", "num_experts_per_tok", "moe_intermediate_size",
                                                   "decoder_sparse_step", "mlp_only_layers", "num_key_value_heads"})),
            counts(document(kQwen30bA3b)));
  EXPECT_EQ(counts(without(document(kDeepseekV3),
                           {"n_routed_experts", "n_shared_experts", "moe_intermediate_size", "first_k_dense_replace",
                            "moe_layer_freq", "topk_method", "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim",
                            "qk_rope_head_dim", "v_head_dim", "num_experts_per_tok", "attention_bias"})),
            counts(document(kDeepseekV3)));
}

TEST(CountsTest, Refusals) {
  const auto mixtral = [](std::string_view more) { return refusal(with(document(kMixtral8x7b), more)); };
  const auto qwen = [](std::string_view more) { return refusal(with(document(kQwen30bA3b), more)); };
  const auto deepseek = [](std::string_view more) { return refusal(with(document(kDeepseekV3), more)); };
  EXPECT_EQ(mixtral(R"({"num_local_expert": 4})"),
            "config.json: num_local_expert = 4: mixtral has no such field that is known here, and an unknown field may "
            "change the count; nearest legal: num_local_experts");
  EXPECT_EQ(mixtral(R"({"num_experts_per_tok": 9})"),
            "config.json: num_experts_per_tok = 9: must be at most the number of experts (8)");
  EXPECT_EQ(mixtral(R"({"num_key_value_heads": 5})"),
            "config.json: num_key_value_heads = 5: must divide num_attention_heads (32)");
  EXPECT_EQ(mixtral(R"({"num_attention_heads": 24})"),
            "config.json: num_attention_heads = 24: must divide hidden_size (4096) where head_dim is not given");
  EXPECT_EQ(mixtral(R"({"num_local_experts": 0})"),
            "config.json: num_local_experts = 0: must be an integer from 1 to 1,048,576");
  EXPECT_EQ(qwen(R"({"mlp_only_layers": [1, "x"]})"),
            "config.json: mlp_only_layers = [1,\"x\"]: must be a list of layers");
  EXPECT_EQ(qwen(R"({"mlp_only_layers": 3})"), "config.json: mlp_only_layers = 3: must be a list of layers");
  EXPECT_EQ(deepseek(R"({"topk_method": "greedy"})"),
            "config.json: topk_method = greedy: deepseek_v3's routers are counted with their balancing biases alone; "
            "nearest legal: noaux_tc");
  EXPECT_EQ(deepseek(R"({"kv_lora_rank": null})"),
            "config.json: kv_lora_rank = null: must be an integer from 1 to 1,073,741,824");
  EXPECT_EQ(refusal(document(R"({"model_type": "mixtral"})")),
            "config.json: num_hidden_layers: the field is missing, and the model's shape depends on it; add "
            "\"num_hidden_layers\"");
  EXPECT_EQ(refusal(document(R"({"model_type": "mamba"})")),
            "config.json: model_type = mamba: this model family is not supported; nearest legal: gpt2, llama, mistral, "
            "qwen2, qwen3, gemma, olmo2, phi3");
  EXPECT_EQ(refusal(Json(3)), "config.json = 3: must hold one object, holds integer");
  EXPECT_NE(deepseek(R"({"hidden_size": 1073741824, "n_routed_experts": 1048576})").find("must be below 1e+15"),
            std::string::npos);
}

// Every field with every odd value: counted or refused, never a crash or an overflow.
TEST(CountsTest, NoValueCrashes) {
  const std::int64_t most = std::int64_t{1} << 30;
  for (const std::string_view base : {kMixtral8x7b, kQwen30bA3b, kDeepseekV3}) {
    const Json legal = document(base);
    for (const auto& [name, unused] : legal.as_object()) {
      for (const Json& value :
           {Json(nullptr), Json(true), Json(0), Json(1), Json(-1), Json(7), Json(most),
            Json(std::numeric_limits<std::int64_t>::max()), Json(0.5), Json("x"), Json::array(), Json::object()}) {
        Json changed = legal;
        changed[name] = value;
        const Result<ParameterCounts> found = count_parameters(changed, "changed");
        if (!found) {
          EXPECT_FALSE(found.failure().sentence().empty());
          continue;
        }
        EXPECT_GT(found->active, 0) << name;
        EXPECT_LE(found->active, found->total) << name;
        EXPECT_LT(static_cast<double>(found->total), 1e15) << name;
      }
    }
  }
}

}  // namespace
}  // namespace trireme::model
