#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "model/config.h"
#include "model/config_fields.h"
#include "model/config_reading.h"
#include "model/counts.h"
#include "model/field_reader.h"

namespace trireme::model {
namespace {

constexpr Range kPositive{.least = 0.0, .least_is_legal = false, .words = "must be above 0"};
constexpr Range kSmall{.least = 0.0, .least_is_legal = false, .end = 1.0, .words = "must be above 0 and below 1"};
constexpr Range kFraction{.least = 0.0, .end = 1.0, .words = "must be in [0, 1)"};
constexpr Range kAtLeastOne{.least = 1.0, .words = "must be at least 1"};

// Two readers of one config.json: of what shapes depend on, and of what the arithmetic alone depends on.
struct Readers {
  FieldReader shapes;
  FieldReader arithmetic;
  FieldReader& of(Changes changes) { return changes == Changes::kShapes ? shapes : arithmetic; }
};

Activation parse_activation(FieldReader& fields, std::string_view name, std::string fallback) {
  const std::string text = fields.text_or(name, std::move(fallback));
  if (text == "gelu_new" || text == "gelu_pytorch_tanh") return Activation::kGeluTanh;
  if (text == "silu" || text == "swish") return Activation::kSilu;
  if (text == "relu") return Activation::kRelu;
  if (text == "gelu") {
    fields.refuse(name, text, "the exact GELU (by erf) is not implemented",
                  "the tanh form is \"gelu_new\" or \"gelu_pytorch_tanh\", another function: change the field only "
                  "for a model that is trained from the start");
  } else {
    fields.refuse(name, text, "this activation function is not implemented", "gelu_new, gelu_pytorch_tanh, silu, relu");
  }
  return Activation::kSilu;
}

void check_unknown_field(FieldReader& fields, Family family, const std::string& name, const Json& value) {
  const std::string meant = misspelt_field(name, fields_that_count(family));
  if (is_switched_off(value) && meant.empty()) return;
  fields.refuse(name, shown(value),
                fmt::format("{} has no such field that is known here, and an unknown field may change the result",
                            family_name(family)),
                meant.empty() ? nearest_word(name, known_fields(family)) : meant);
}

void check_fields(Readers& readers, Family family) {
  const auto read = read_fields(family);
  const auto fixed = fixed_fields(family);
  const auto foreign = foreign_fields();
  for (const auto& [name, value] : readers.shapes.object().as_object()) {
    if (std::find(read.begin(), read.end(), name) != read.end()) continue;
    const auto same_name = [&name = name](const auto& field) { return field.name == name; };
    if (const auto at = std::find_if(fixed.begin(), fixed.end(), same_name); at != fixed.end()) {
      if (is_legal(*at, value)) continue;
      readers.of(at->changes).refuse(name, shown(value), std::string(at->rule), std::string(at->legal));
    } else if (const auto other = std::find_if(foreign.begin(), foreign.end(), same_name); other != foreign.end()) {
      if (is_switched_off(value)) continue;
      readers.of(other->changes).refuse(name, shown(value), std::string(other->rule));
    } else if (!reason_to_pass_over(name)) {
      check_unknown_field(readers.shapes, family, name, value);
    }
  }
}

void check_keys(FieldReader& fields, std::string_view type, const std::vector<std::string>& legal) {
  for (const auto& [key, value] : fields.object().as_object()) {
    if (std::find(legal.begin(), legal.end(), key) != legal.end() || is_switched_off(value)) continue;
    fields.refuse(key, shown(value), fmt::format("rotary scaling of type {} has no such field", type),
                  nearest_word(key, legal));
  }
}

void require(FieldReader& fields, std::string_view name) {
  if (fields.object().find(name) != nullptr) return;
  fields.refuse(name, "", "the field is missing, and rotary frequencies depend on it", fmt::format("add \"{}\"", name));
}

// One object of rotary parameters: rope_scaling as transformers 4 writes it, rope_parameters as 5 does.
void parse_rope_object(FieldReader& rope, Config& config) {
  const Json* old_type = rope.given("type");
  const Json* new_type = rope.given("rope_type");
  if (old_type != nullptr && new_type != nullptr && *old_type != *new_type) {
    rope.refuse("type", shown(*old_type), fmt::format("contradicts rope_type ({})", shown(*new_type)));
  }
  const std::string type = rope.text_or(new_type != nullptr || old_type == nullptr ? "rope_type" : "type", "default");
  if (rope.given("rope_theta") != nullptr) {
    config.rope_theta = rope.number_or("rope_theta", config.rope_theta, kAtLeastOne);
  }
  if (const Json* part = rope.given("partial_rotary_factor");
      part != nullptr && *part != Json(1.0) && *part != Json(1)) {
    rope.refuse("partial_rotary_factor", shown(*part), "rotary embeddings of a part of a head are not implemented",
                "1.0");
  }
  std::vector<std::string> legal = {"type", "rope_type", "rope_theta", "partial_rotary_factor"};
  RopeScaling& scaling = config.rope_scaling;
  if (type == "default") {
    check_keys(rope, type, legal);
    return;
  }
  if (type != "linear" && type != "llama3") {
    rope.refuse("rope_type", type, "this rotary scaling is not implemented", "default, linear, llama3");
    return;
  }
  legal.push_back("factor");
  require(rope, "factor");
  scaling.factor = rope.number_or("factor", 1.0, kAtLeastOne);
  scaling.kind = RopeScalingKind::kLinear;
  if (type == "llama3") {
    scaling.kind = RopeScalingKind::kLlama3;
    for (const char* name : {"low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}) {
      require(rope, name);
      legal.emplace_back(name);
    }
    scaling.low_frequency_factor = rope.number_or("low_freq_factor", 1.0, kPositive);
    scaling.high_frequency_factor = rope.number_or("high_freq_factor", 4.0, kPositive);
    scaling.original_positions = rope.size_or("original_max_position_embeddings", 1);
    if (rope.ok() && scaling.high_frequency_factor <= scaling.low_frequency_factor) {
      rope.refuse("high_freq_factor", fmt::format("{}", scaling.high_frequency_factor),
                  fmt::format("must be above low_freq_factor ({})", scaling.low_frequency_factor));
    }
  }
  check_keys(rope, type, legal);
}

// rope_scaling or rope_parameters, where they are given; the name too. transformers 5 writes both for readers of 4.
std::pair<std::string_view, const Json*> rope_object(FieldReader& fields) {
  const auto switched_on = [&](std::string_view name) {
    const Json* value = fields.given(name);
    return value == nullptr || is_switched_off(*value) ? nullptr : value;
  };
  const Json* scaling = switched_on("rope_scaling");
  const Json* parameters = switched_on("rope_parameters");
  if (scaling != nullptr && parameters != nullptr && *scaling != *parameters) {
    fields.refuse("rope_scaling", shown(*scaling), "must not be given beside rope_parameters", "keep one of the two");
  }
  if (scaling != nullptr) return {"rope_scaling", scaling};
  return {"rope_parameters", parameters};
}

void parse_rope(FieldReader& fields, Config& config) {
  config.position = PositionKind::kRotary;
  const auto [name, object] = rope_object(fields);
  const bool inside =
      object != nullptr && object->find("rope_theta") != nullptr && !object->find("rope_theta")->is_null();
  const bool outside = fields.given("rope_theta") != nullptr;
  // null is no number; but where the object has the number, the field is of the other generation of files.
  if (outside || !inside) config.rope_theta = fields.number_or("rope_theta", 10000.0, kAtLeastOne);
  if (object == nullptr) return;
  if (!object->is_object()) {
    fields.refuse(name, shown(*object), "must be an object or null");
    return;
  }
  const double outer_theta = config.rope_theta;
  FieldReader rope(*object, fields.option(name));
  parse_rope_object(rope, config);
  fields.adopt(rope);
  if (rope.ok() && outside && config.rope_theta != outer_theta) {
    fields.refuse("rope_theta", fmt::format("{}", outer_theta),
                  fmt::format("contradicts {}'s rope_theta ({})", name, config.rope_theta));
  }
}

// A size under gpt2's own name, or under that which transformers takes for it in every family.
std::int64_t gpt2_size(FieldReader& fields, std::string_view own, std::string_view common, std::int64_t fallback,
                       std::int64_t most = kMaxWidth) {
  if (fields.given(common) == nullptr)
    return fallback > 0 ? fields.size_or(own, fallback, most) : fields.size(own, most);
  const std::int64_t size = fields.size_or(common, 1, most);
  if (fields.object().find(own) != nullptr && fields.size_or(own, size, most) != size) {
    fields.refuse(common, std::to_string(size),
                  fmt::format("contradicts {} ({})", own, shown(*fields.object().find(own))));
  }
  return size;
}

void parse_gpt2(Readers& readers, Config& config) {
  FieldReader& fields = readers.shapes;
  FieldReader& arithmetic = readers.arithmetic;
  config.hidden = gpt2_size(fields, "n_embd", "hidden_size", 0);
  config.layers = gpt2_size(fields, "n_layer", "num_hidden_layers", 0, kMaxLayers);
  config.vocabulary = fields.size("vocab_size");
  config.heads = gpt2_size(fields, "n_head", "num_attention_heads", 12);
  config.kv_heads = config.heads;
  config.ffn = fields.size_or_null("n_inner", 4 * config.hidden);
  config.max_positions = gpt2_size(fields, "n_positions", "max_position_embeddings", 1024);
  // Old files say the context length twice.
  if (fields.given("n_ctx") != nullptr && fields.size_or("n_ctx", 1) != config.max_positions) {
    fields.refuse("n_ctx", shown(*fields.given("n_ctx")),
                  fmt::format("contradicts n_positions ({})", config.max_positions));
  }
  config.norm = NormKind::kLayerNorm;
  config.norm_epsilon = arithmetic.number_or("layer_norm_epsilon", 1e-5, kSmall);
  config.activation = parse_activation(arithmetic, "activation_function", "gelu_new");
  config.gated_mlp = false;
  config.attention_input_bias = config.attention_output_bias = config.mlp_bias = true;
  config.tied_embeddings = fields.flag_or("tie_word_embeddings", true);
  config.position = PositionKind::kLearned;
  config.embedding_dropout = arithmetic.number_or("embd_pdrop", 0.1, kFraction);
  config.attention_dropout = arithmetic.number_or("attn_pdrop", 0.1, kFraction);
  config.residual_dropout = arithmetic.number_or("resid_pdrop", 0.1, kFraction);
  config.bos_token = arithmetic.token_or("bos_token_id", 50256, config.vocabulary);
  config.eos_token = arithmetic.token_or("eos_token_id", 50256, config.vocabulary);
  if (!fields.ok()) return;
  if (config.hidden % config.heads != 0) {
    fields.refuse("n_head", std::to_string(config.heads), fmt::format("must divide n_embd ({})", config.hidden));
    return;
  }
  config.head_dim = config.hidden / config.heads;
}

// What Hugging Face takes where a rotary family's file is silent. 0 kv_heads: as many as heads; 0 head_dim: hidden /
// heads; 0 sliding_window: none. null for any of the three means the same.
struct RotaryDefaults {
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t max_positions = 0;
  std::int64_t sliding_window = 0;
  std::string_view activation = "silu";
  bool tied_embeddings = false;
  std::int64_t bos_token = -1;
  std::int64_t eos_token = -1;
  double norm_epsilon = 1e-6;
};
RotaryDefaults rotary_defaults(Family family) {
  switch (family) {
    case Family::kMistral:
      return {.kv_heads = 8, .max_positions = 131072, .sliding_window = 4096, .bos_token = 1, .eos_token = 2};
    case Family::kQwen2:
      return {.kv_heads = 32, .max_positions = 32768, .sliding_window = 4096};
    case Family::kQwen3:
      return {.kv_heads = 32, .head_dim = 128, .max_positions = 32768, .sliding_window = 4096};
    case Family::kGemma:
      return {.kv_heads = 16,
              .head_dim = 256,
              .max_positions = 8192,
              .activation = "gelu_pytorch_tanh",
              .tied_embeddings = true,
              .bos_token = 2,
              .eos_token = 1};
    case Family::kOlmo2:
      return {.max_positions = 2048, .eos_token = 50279, .norm_epsilon = 1e-5};
    case Family::kPhi3:
      return {.max_positions = 4096, .bos_token = 1, .eos_token = 32000, .norm_epsilon = 1e-5};
    case Family::kGpt2:
    case Family::kLlama:
      break;
  }
  return {.max_positions = 2048, .bos_token = 1, .eos_token = 2};
}

// `absent` where the field is absent, `null` where it is null.
std::int64_t size_or_either(FieldReader& fields, std::string_view name, std::int64_t absent, std::int64_t null) {
  return fields.object().find(name) == nullptr ? absent : fields.size_or_null(name, null);
}

// Gemma's own files say "gelu" in hidden_act, and transformers computes the tanh form for them: hidden_activation,
// where it is given, is what counts.
Activation parse_gemma_activation(FieldReader& fields, std::string_view fallback) {
  if (fields.given("hidden_activation") != nullptr) {
    return parse_activation(fields, "hidden_activation", std::string(fallback));
  }
  const Json* old = fields.given("hidden_act");
  if (old == nullptr || *old == Json("gelu")) return Activation::kGeluTanh;
  return parse_activation(fields, "hidden_act", std::string(fallback));
}

// The list says, layer by layer, what sliding_window and its companions say already.
void check_layer_types(FieldReader& fields, const Config& config) {
  const Json* given = fields.given("layer_types");
  if (given == nullptr || !fields.ok()) return;
  const auto expected = [&](std::size_t layer) {
    const bool windowed = config.sliding_window > 0 && static_cast<std::int64_t>(layer) >= config.first_window_layer;
    return Json(windowed ? "sliding_attention" : "full_attention");
  };
  bool same = given->is_array() && static_cast<std::int64_t>(given->as_array().size()) == config.layers;
  for (std::size_t i = 0; same && i < given->as_array().size(); ++i) same = given->as_array()[i] == expected(i);
  if (same) return;
  fields.refuse("layer_types", shown(*given),
                "must name every layer's attention as use_sliding_window and max_window_layers have it",
                "leave the field out");
}

void parse_window(FieldReader& fields, Config& config, const RotaryDefaults& defaults) {
  const bool qwen = config.family == Family::kQwen2 || config.family == Family::kQwen3;
  const bool has_windows = qwen || config.family == Family::kMistral || config.family == Family::kPhi3;
  if (has_windows && (!qwen || fields.flag_or("use_sliding_window", false))) {
    config.sliding_window = size_or_either(fields, "sliding_window", defaults.sliding_window, 0);
    if (qwen) config.first_window_layer = fields.size_or("max_window_layers", 28, kMaxWidth, 0);
    if (config.sliding_window == 0 || config.first_window_layer >= config.layers) {
      config.sliding_window = config.first_window_layer = 0;
    }
  }
  check_layer_types(fields, config);
}

void check_heads(Readers& readers, const Config& config, bool derived_head_dim) {
  FieldReader& fields = readers.shapes;
  if (config.heads % config.kv_heads != 0) {
    fields.refuse("num_key_value_heads", std::to_string(config.kv_heads),
                  fmt::format("must divide num_attention_heads ({})", config.heads));
  }
  if (derived_head_dim && config.hidden % config.heads != 0) {
    fields.refuse("num_attention_heads", std::to_string(config.heads),
                  fmt::format("must divide hidden_size ({}) where head_dim is not given", config.hidden));
  }
  if (config.head_dim % 2 != 0) {
    readers.arithmetic.refuse(
        "head_dim", std::to_string(config.head_dim), "must be even, since rotary embeddings turn pairs",
        fmt::format("{}, {}", std::max<std::int64_t>(2, config.head_dim - 1), config.head_dim + 1));
  }
}

// What the family is known by, beside the fields of all.
void set_family_parts(Readers& readers, Config& config) {
  FieldReader& fields = readers.shapes;
  const auto biases = [&] {
    config.attention_input_bias = config.attention_output_bias = fields.flag_or("attention_bias", false);
  };
  config.norm = NormKind::kRmsNorm;
  switch (config.family) {
    case Family::kGpt2:
    case Family::kMistral:
      return;
    case Family::kLlama:
      biases();
      config.mlp_bias = fields.flag_or("mlp_bias", false);
      return;
    case Family::kQwen2:
      config.attention_input_bias = true;
      return;
    case Family::kQwen3:
      biases();
      config.qk_norm = QkNorm::kHeads;
      return;
    case Family::kGemma:
      biases();
      config.norm = NormKind::kRmsNormOffset;
      config.embedding_scale = std::sqrt(static_cast<double>(config.hidden));
      return;
    case Family::kOlmo2:
      config.qk_norm = QkNorm::kWhole;
      config.norms_outputs = true;
      return;
    case Family::kPhi3:
      config.fused_projections = true;
      config.residual_dropout = readers.arithmetic.number_or("resid_pdrop", 0.0, kFraction);
      return;
  }
}

// Phi-3's files say how far the frequencies reach before their scaling by lists of factors, also where there is none.
void check_original_positions(FieldReader& arithmetic, const Config& config) {
  constexpr std::string_view kName = "original_max_position_embeddings";
  if (config.family != Family::kPhi3 || arithmetic.given(kName) == nullptr) return;
  if (arithmetic.size_or(kName, config.max_positions) == config.max_positions) return;
  arithmetic.refuse(kName, shown(*arithmetic.given(kName)),
                    fmt::format("differs from max_position_embeddings ({}), which would have to mean a scaling of "
                                "rotary frequencies",
                                config.max_positions));
}

// Llama and the families that differ from it in a few fields.
void parse_rotary_family(Readers& readers, Config& config) {
  FieldReader& fields = readers.shapes;
  FieldReader& arithmetic = readers.arithmetic;
  const RotaryDefaults defaults = rotary_defaults(config.family);
  config.hidden = fields.size("hidden_size");
  config.ffn = fields.size("intermediate_size");
  config.layers = fields.size("num_hidden_layers", kMaxLayers);
  config.vocabulary = fields.size("vocab_size");
  config.heads = fields.size("num_attention_heads");
  config.kv_heads = size_or_either(fields, "num_key_value_heads",
                                   defaults.kv_heads > 0 ? defaults.kv_heads : config.heads, config.heads);
  const std::int64_t derived = config.hidden / config.heads;
  config.head_dim = size_or_either(fields, "head_dim", defaults.head_dim > 0 ? defaults.head_dim : derived, derived);
  config.max_positions = fields.size_or("max_position_embeddings", defaults.max_positions);
  config.norm_epsilon = arithmetic.number_or("rms_norm_eps", defaults.norm_epsilon, kSmall);
  config.activation = config.family == Family::kGemma
                          ? parse_gemma_activation(arithmetic, defaults.activation)
                          : parse_activation(arithmetic, "hidden_act", std::string(defaults.activation));
  config.gated_mlp = true;
  set_family_parts(readers, config);
  config.tied_embeddings = fields.flag_or("tie_word_embeddings", defaults.tied_embeddings);
  config.attention_dropout = arithmetic.number_or("attention_dropout", 0.0, kFraction);
  config.bos_token = arithmetic.token_or("bos_token_id", defaults.bos_token, config.vocabulary);
  config.eos_token = arithmetic.token_or("eos_token_id", defaults.eos_token, config.vocabulary);
  parse_rope(arithmetic, config);
  check_original_positions(arithmetic, config);
  parse_window(arithmetic, config, defaults);
  if (!fields.ok()) return;
  const bool no_default = fields.object().find("head_dim") != nullptr || defaults.head_dim == 0;
  check_heads(readers, config, fields.given("head_dim") == nullptr && no_default);
}

void check_total(FieldReader& fields, const Config& config) {
  const auto real = [](std::int64_t value) { return static_cast<double>(value); };
  const double head_dim = real(config.head_dim);
  const double attention = 2.0 * (real(config.heads) + real(config.kv_heads)) * head_dim;
  const double mlp = (config.gated_mlp ? 3.0 : 2.0) * real(config.ffn);
  const double rows =
      real(config.layers) * (attention + mlp) + 2.0 * real(config.vocabulary) + real(config.max_positions);
  fields.refuse_total(rows * real(config.hidden));
}

}  // namespace

Result<ConfigReading> read_config(const Json& document, const std::string& what) {
  Readers readers{.shapes = FieldReader(document, what), .arithmetic = FieldReader(document, what)};
  FieldReader& fields = readers.shapes;
  if (!document.is_object()) {
    return Failure{what, shown(document), fmt::format("must hold one object, holds {}", document.type_name()), ""};
  }
  const Json* type = document.find("model_type");
  if (type == nullptr) {
    return Failure{fields.option("model_type"), "", "the field is missing", family_names()};
  }
  const std::optional<Family> family = type->is_string() ? family_of(type->as_string()) : std::nullopt;
  if (is_mixture_of_experts(document)) {
    return Failure{fields.option("model_type"), type->as_string(),
                   "layouts of mixture-of-experts models are not planned yet",
                   "`trireme model` counts this model's parameters"};
  }
  if (!family) {
    return Failure{fields.option("model_type"), type->is_string() ? type->as_string() : shown(*type),
                   "this model family is not supported", family_names()};
  }
  ConfigReading reading;
  Config& config = reading.config;
  config.family = *family;
  check_fields(readers, config.family);
  if (config.family == Family::kGpt2) {
    parse_gpt2(readers, config);
  } else {
    parse_rotary_family(readers, config);
  }
  config.initializer_range = readers.arithmetic.number_or("initializer_range", 0.02, kFraction);
  if (fields.ok()) check_total(fields, config);
  if (!fields.ok()) return fields.failure();
  reading.not_computed = readers.arithmetic.failures();
  return reading;
}

Result<Config> parse_config(const Json& document, const std::string& what) {
  Result<ConfigReading> reading = read_config(document, what);
  if (!reading) return reading.failure();
  if (!reading->not_computed.empty()) return reading->not_computed.front();
  return reading->config;
}

}  // namespace trireme::model
