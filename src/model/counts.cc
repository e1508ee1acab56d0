#include "model/counts.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "model/config_fields.h"
#include "model/config_reading.h"
#include "model/field_reader.h"
#include "model/parameters.h"

namespace trireme::model {
namespace {

constexpr std::int64_t kMaxExperts = 1 << 20;

// What the counts of a mixture of experts depend on. All norms are RMS norms, all MLPs are gated and without biases.
struct Shape {
  std::int64_t hidden = 0;
  std::int64_t vocabulary = 0;
  bool tied = false;
  std::int64_t dense_layers = 0;
  std::int64_t expert_layers = 0;
  std::int64_t dense_ffn = 0;
  std::int64_t experts = 0;
  std::int64_t experts_per_token = 0;
  std::int64_t expert_ffn = 0;
  std::int64_t shared_ffn = 0;  // of all shared experts together
  bool router_correction = false;
  std::int64_t heads = 0;
  bool attention_bias = false;
  // Grouped heads.
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  bool qk_norm = false;
  // Multi-head latent attention, where kv_rank > 0. query_rank 0: queries are projected from the input itself.
  std::int64_t query_rank = 0;
  std::int64_t kv_rank = 0;
  std::int64_t plain_dim = 0;   // of a query or key head, without positions
  std::int64_t rotary_dim = 0;  // of a query head, and of the one key that all heads share
  std::int64_t value_dim = 0;
};

// In std::int64_t for the count, in double to find what would overflow it.
template <typename Number>
Number attention_of(const Shape& s) {
  const auto h = static_cast<Number>(s.hidden);
  const auto a = static_cast<Number>(s.heads);
  if (s.kv_rank == 0) {
    const auto q = a * static_cast<Number>(s.head_dim);
    const auto kv = static_cast<Number>(s.kv_heads) * static_cast<Number>(s.head_dim);
    const auto bias = s.attention_bias ? q + 2 * kv + h : Number{0};
    const auto norms = s.qk_norm ? 2 * static_cast<Number>(s.head_dim) : Number{0};
    return 2 * h * q + 2 * h * kv + bias + norms;
  }
  // Ranks come down by one matrix (with a bias, if there are any), are normed, and go up to all heads by another.
  const auto q_rank = static_cast<Number>(s.query_rank);
  const auto kv_rank = static_cast<Number>(s.kv_rank);
  const auto rotary = static_cast<Number>(s.rotary_dim);
  const auto plain = static_cast<Number>(s.plain_dim);
  const auto value = static_cast<Number>(s.value_dim);
  const auto query_width = a * (plain + rotary);
  const auto query = s.query_rank > 0 ? h * q_rank + q_rank + q_rank * query_width : h * query_width;
  const auto key_value = h * (kv_rank + rotary) + kv_rank + kv_rank * a * (plain + value);
  const auto bias = s.attention_bias ? q_rank + kv_rank + rotary + h : Number{0};
  return query + key_value + a * value * h + bias;
}

template <typename Number>
struct Parts {
  Number total{}, embedding{}, routed{}, corrections{};
};
template <typename Number>
Parts<Number> parts_of(const Shape& s) {
  const auto h = static_cast<Number>(s.hidden);
  const auto expert_layers = static_cast<Number>(s.expert_layers);
  const auto layers = static_cast<Number>(s.dense_layers) + expert_layers;
  const auto experts = static_cast<Number>(s.experts);
  Parts<Number> parts;
  parts.embedding = static_cast<Number>(s.vocabulary) * h;
  parts.routed = expert_layers * experts * 3 * h * static_cast<Number>(s.expert_ffn);
  parts.corrections = s.router_correction ? expert_layers * experts : Number{0};
  const auto routers = expert_layers * h * experts;
  const auto shared = expert_layers * 3 * h * static_cast<Number>(s.shared_ffn);
  const auto dense = static_cast<Number>(s.dense_layers) * 3 * h * static_cast<Number>(s.dense_ffn);
  const auto outer = parts.embedding * (s.tied ? 1 : 2) + h;  // the last norm's
  parts.total =
      layers * (attention_of<Number>(s) + 2 * h) + dense + parts.routed + parts.corrections + routers + shared + outer;
  return parts;
}

// The reader's family and its fields. `read` shape the count; `passed_over` do not change it.
struct ExpertFamily {
  std::string_view name;
  std::span<const std::string_view> read;
  std::span<const std::string_view> passed_over;
  Shape (*shape)(FieldReader&);
};

constexpr std::array kCommonRead = std::to_array<std::string_view>({
    "model_type",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "vocab_size",
    "tie_word_embeddings",
    "num_experts_per_tok",
});
constexpr std::array kCommonPassedOver = std::to_array<std::string_view>({
    "attention_dropout",
    "bos_token_id",
    "eos_token_id",
    "hidden_act",
    "initializer_range",
    "max_position_embeddings",
    "output_router_logits",
    "quantization_config",
    "rms_norm_eps",
    "rope_parameters",
    "rope_scaling",
    "rope_theta",
    "router_aux_loss_coef",
});
constexpr std::array kMixtralRead =
    std::to_array<std::string_view>({"num_local_experts", "num_key_value_heads", "head_dim"});
constexpr std::array kMixtralPassedOver = std::to_array<std::string_view>({"sliding_window", "router_jitter_noise"});
constexpr std::array kQwen3Read =
    std::to_array<std::string_view>({"num_experts", "moe_intermediate_size", "decoder_sparse_step", "mlp_only_layers",
                                     "num_key_value_heads", "head_dim", "attention_bias"});
constexpr std::array kQwen3PassedOver =
    std::to_array<std::string_view>({"max_window_layers", "norm_topk_prob", "sliding_window", "use_sliding_window"});
constexpr std::array kDeepseekRead = std::to_array<std::string_view>(
    {"n_routed_experts", "n_shared_experts", "moe_intermediate_size", "first_k_dense_replace", "moe_layer_freq",
     "topk_method", "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim",
     "attention_bias"});
constexpr std::array kDeepseekPassedOver = std::to_array<std::string_view>(
    {"aux_loss_alpha", "ep_size", "head_dim", "n_group", "norm_topk_prob", "num_key_value_heads",
     "num_nextn_predict_layers", "pretraining_tp", "qk_head_dim", "rope_interleave", "routed_scaling_factor",
     "scoring_func", "seq_aux", "topk_group"});

// experts_per_token: Hugging Face's default. The number of experts is read by then.
void read_common(FieldReader& fields, Shape& shape, std::int64_t experts_per_token) {
  shape.hidden = fields.size("hidden_size");
  shape.dense_ffn = fields.size("intermediate_size");
  shape.heads = fields.size("num_attention_heads");
  shape.vocabulary = fields.size("vocab_size");
  shape.tied = fields.flag_or("tie_word_embeddings", false);
  shape.experts_per_token = fields.size_or("num_experts_per_tok", experts_per_token);
  if (fields.ok() && shape.experts_per_token > shape.experts) {
    fields.refuse("num_experts_per_tok", std::to_string(shape.experts_per_token),
                  fmt::format("must be at most the number of experts ({})", shape.experts));
  }
}

void read_grouped_heads(FieldReader& fields, Shape& shape, std::int64_t kv_heads) {
  const bool absent = fields.object().find("num_key_value_heads") == nullptr;
  shape.kv_heads = absent ? kv_heads : fields.size_or_null("num_key_value_heads", shape.heads);
  shape.head_dim = fields.size_or_null("head_dim", shape.hidden / shape.heads);
  if (!fields.ok()) return;
  if (shape.heads % shape.kv_heads != 0) {
    fields.refuse("num_key_value_heads", std::to_string(shape.kv_heads),
                  fmt::format("must divide num_attention_heads ({})", shape.heads));
  }
  if (fields.given("head_dim") == nullptr && shape.hidden % shape.heads != 0) {
    fields.refuse("num_attention_heads", std::to_string(shape.heads),
                  fmt::format("must divide hidden_size ({}) where head_dim is not given", shape.hidden));
  }
}

Shape read_mixtral(FieldReader& fields) {
  Shape shape;
  shape.expert_layers = fields.size("num_hidden_layers", kMaxLayers);
  shape.experts = fields.size_or("num_local_experts", 8, kMaxExperts);
  read_common(fields, shape, 2);
  shape.expert_ffn = shape.dense_ffn;
  read_grouped_heads(fields, shape, 8);
  return shape;
}

// The layers that mlp_only_layers names; of no use where a refusal was met.
std::vector<std::int64_t> layer_list(FieldReader& fields, std::string_view name) {
  const Json* list = fields.given(name);
  if (list == nullptr) return {};
  std::vector<std::int64_t> layers;
  bool integers = list->is_array();
  for (std::size_t i = 0; integers && i < list->as_array().size(); ++i) {
    integers = list->as_array()[i].is_integer();
    if (integers) layers.push_back(list->as_array()[i].as_integer());
  }
  if (!integers) fields.refuse(name, shown(*list), "must be a list of layers");
  std::sort(layers.begin(), layers.end());
  return layers;
}

Shape read_qwen3_moe(FieldReader& fields) {
  Shape shape;
  const std::int64_t layers = fields.size("num_hidden_layers", kMaxLayers);
  shape.experts = fields.size_or("num_experts", 128, kMaxExperts);
  read_common(fields, shape, 8);
  shape.expert_ffn = fields.size_or("moe_intermediate_size", 768);
  const std::int64_t step = fields.size_or("decoder_sparse_step", 1);
  const std::vector<std::int64_t> dense = layer_list(fields, "mlp_only_layers");
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const bool sparse = (layer + 1) % step == 0 && !std::binary_search(dense.begin(), dense.end(), layer);
    ++(sparse ? shape.expert_layers : shape.dense_layers);
  }
  shape.attention_bias = fields.flag_or("attention_bias", false);
  shape.qk_norm = true;
  read_grouped_heads(fields, shape, 4);
  return shape;
}

Shape read_deepseek_v3(FieldReader& fields) {
  Shape shape;
  const std::int64_t layers = fields.size("num_hidden_layers", kMaxLayers);
  shape.experts = fields.size_or("n_routed_experts", 256, kMaxExperts);
  read_common(fields, shape, 8);
  shape.expert_ffn = fields.size_or("moe_intermediate_size", 2048);
  const bool no_shared =
      fields.object().find("n_shared_experts") != nullptr && fields.given("n_shared_experts") == nullptr;
  shape.shared_ffn = no_shared ? 0 : shape.expert_ffn * fields.size_or("n_shared_experts", 1, kMaxExperts, 0);
  const std::int64_t first = fields.size_or("first_k_dense_replace", 3, kMaxWidth, 0);
  const std::int64_t frequency = fields.size_or("moe_layer_freq", 1);
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    ++(layer >= first && layer % frequency == 0 ? shape.expert_layers : shape.dense_layers);
  }
  shape.router_correction = true;
  if (const std::string method = fields.text_or("topk_method", "noaux_tc"); method != "noaux_tc") {
    fields.refuse("topk_method", method, "deepseek_v3's routers are counted with their balancing biases alone",
                  "noaux_tc");
  }
  shape.attention_bias = fields.flag_or("attention_bias", false);
  const bool absent = fields.object().find("q_lora_rank") == nullptr;
  shape.query_rank = absent ? 1536 : fields.size_or_null("q_lora_rank", 0);
  shape.kv_rank = fields.size_or("kv_lora_rank", 512);
  shape.plain_dim = fields.size_or("qk_nope_head_dim", 128);
  shape.rotary_dim = fields.size_or("qk_rope_head_dim", 64);
  shape.value_dim = fields.size_or("v_head_dim", 128);
  return shape;
}

constexpr std::array kExpertFamilies = std::to_array<ExpertFamily>({
    {"mixtral", kMixtralRead, kMixtralPassedOver, read_mixtral},
    {"qwen3_moe", kQwen3Read, kQwen3PassedOver, read_qwen3_moe},
    {"deepseek_v3", kDeepseekRead, kDeepseekPassedOver, read_deepseek_v3},
});

const ExpertFamily* expert_family(const Json& config) {
  const Json* type = config.find("model_type");
  if (type == nullptr || !type->is_string()) return nullptr;
  const auto at = std::ranges::find(kExpertFamilies, type->as_string(), &ExpertFamily::name);
  return at == kExpertFamilies.end() ? nullptr : &*at;
}

void check_fields(FieldReader& fields, const ExpertFamily& family) {
  std::vector<std::string> known;
  for (const auto names : {std::span<const std::string_view>(kCommonRead), family.read,
                           std::span<const std::string_view>(kCommonPassedOver), family.passed_over}) {
    known.insert(known.end(), names.begin(), names.end());
  }
  for (const auto& [name, value] : fields.object().as_object()) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    if (reason_to_pass_over(name)) continue;
    const std::string meant = misspelt_field(name, known);
    if (is_switched_off(value) && meant.empty()) continue;
    fields.refuse(
        name, shown(value),
        fmt::format("{} has no such field that is known here, and an unknown field may change the count", family.name),
        meant.empty() ? nearest_word(name, known) : meant);
  }
}

}  // namespace

bool is_mixture_of_experts(const Json& config) { return expert_family(config) != nullptr; }

Result<ParameterCounts> count_parameters(const Json& config, const std::string& what) {
  const ExpertFamily* family = expert_family(config);
  if (family == nullptr) {
    const Result<ConfigReading> dense = read_config(config, what);
    if (!dense) return dense.failure();
    const ParameterTable table = make_parameter_table(dense->config);
    const std::int64_t total = table.total();
    return ParameterCounts{.total = total, .active = total, .embedding = table.parameters.front().elements()};
  }
  FieldReader fields(config, what);
  check_fields(fields, *family);
  const Shape shape = family->shape(fields);
  if (fields.ok()) fields.refuse_total(parts_of<double>(shape).total);
  if (!fields.ok()) return fields.failure();
  const auto parts = parts_of<std::int64_t>(shape);
  const std::int64_t unvisited = parts.routed / shape.experts * (shape.experts - shape.experts_per_token);
  return ParameterCounts{.total = parts.total,
                         .active = parts.total - unvisited,
                         .embedding = parts.embedding,
                         .routed_experts = parts.routed,
                         .corrections = parts.corrections};
}

}  // namespace trireme::model
