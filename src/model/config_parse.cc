#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/units.h"
#include "model/config.h"
#include "model/config_fields.h"

namespace trireme::model {
namespace {

// Widths beyond these are typing errors, and would overflow the exact counts.
constexpr std::int64_t kMaxWidth = std::int64_t{1} << 30;
constexpr std::int64_t kMaxLayers = 100'000;
constexpr double kMaxParameters = 1e15;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::string shown(const Json& value) {
  if (value.is_number() && !std::isfinite(value.as_number())) return "not a finite number";
  constexpr std::size_t kLongest = 60;
  std::string text = value.dump();
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

// The legal numbers of a field.
struct Range {
  double least = -kInfinity;
  bool least_is_legal = true;
  double end = kInfinity;  // never legal itself
  std::string_view words;
};
constexpr Range kPositive{0.0, false, kInfinity, "must be above 0"};
constexpr Range kSmall{0.0, false, 1.0, "must be above 0 and below 1"};
constexpr Range kFraction{0.0, true, 1.0, "must be in [0, 1)"};
constexpr Range kAtLeastOne{1.0, true, kInfinity, "must be at least 1"};

// Reads fields of one object. The first refusal is kept, and later reads give their fallback, so that a parser is a
// list of reads with one check at its end.
class FieldReader {
 public:
  FieldReader(const Json& object, std::string what) : object_(object), what_(std::move(what)) {}

  bool ok() const { return !failure_.has_value(); }
  const Failure& failure() const { return *failure_; }
  const Json& object() const { return object_; }
  std::string option(std::string_view name) const { return fmt::format("{}: {}", what_, name); }

  void refuse(std::string_view name, std::string value, std::string rule, std::string nearest = "") {
    if (failure_) return;
    failure_ = Failure{option(name), std::move(value), std::move(rule), std::move(nearest)};
  }
  void adopt(const Failure& failure) {
    if (!failure_) failure_ = failure;
  }

  // The field, or null where it is absent or null.
  const Json* given(std::string_view name) const {
    const Json* value = object_.find(name);
    return value != nullptr && !value->is_null() ? value : nullptr;
  }

  std::int64_t size(std::string_view name, std::int64_t most = kMaxWidth) {
    if (object_.find(name) == nullptr) {
      refuse(name, "", "the field is missing, and the model's shape depends on it", fmt::format("add \"{}\"", name));
      return 1;
    }
    return size_or(name, 1, most);
  }
  // `fallback` where the field is absent.
  std::int64_t size_or(std::string_view name, std::int64_t fallback, std::int64_t most = kMaxWidth) {
    const Json* value = object_.find(name);
    if (value == nullptr) return fallback;
    if (value->is_integer() && value->as_integer() >= 1 && value->as_integer() <= most) return value->as_integer();
    refuse(name, shown(*value), fmt::format("must be an integer from 1 to {}", format_exact(most)));
    return fallback;
  }
  // `fallback` where the field is absent or null.
  std::int64_t size_or_null(std::string_view name, std::int64_t fallback) {
    return given(name) == nullptr ? fallback : size_or(name, fallback);
  }

  double number_or(std::string_view name, double fallback, const Range& range) {
    const Json* value = object_.find(name);
    if (value == nullptr) return fallback;
    if (!value->is_number()) {
      refuse(name, shown(*value), fmt::format("must be a number, is {}", value->type_name()));
      return fallback;
    }
    const double number = value->as_number();
    const bool above = range.least_is_legal ? number >= range.least : number > range.least;
    if (std::isfinite(number) && above && number < range.end) return number;
    refuse(name, shown(*value), std::string(range.words));
    return fallback;
  }

  bool flag_or(std::string_view name, bool fallback) {
    const Json* value = object_.find(name);
    if (value == nullptr) return fallback;
    if (value->is_bool()) return value->as_bool();
    refuse(name, shown(*value), "must be true or false");
    return fallback;
  }

  std::string text_or(std::string_view name, std::string fallback) {
    const Json* value = object_.find(name);
    if (value == nullptr) return fallback;
    if (value->is_string()) return value->as_string();
    refuse(name, shown(*value), fmt::format("must be a text, is {}", value->type_name()));
    return fallback;
  }

  // A token id, or -1 for none. Of a list the first counts. Ids outside the vocabulary (a default kept in a small
  // model's file) stand for none.
  std::int64_t token_or(std::string_view name, std::int64_t fallback, std::int64_t vocabulary) {
    const Json* value = object_.find(name);
    std::int64_t id = fallback;
    if (value != nullptr) {
      if (value->is_array() && !value->as_array().empty()) value = &value->as_array().front();
      if (!value->is_null() && !value->is_integer()) {
        refuse(name, shown(*value), "must be a token id, a list of them, or null");
      }
      id = value->is_integer() ? value->as_integer() : -1;
    }
    return id >= 0 && id < vocabulary ? id : -1;
  }

 private:
  const Json& object_;
  std::string what_;
  std::optional<Failure> failure_;
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

void check_unknown_fields(FieldReader& fields, Family family) {
  const auto holds = [](std::span<const std::string_view> names, std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  for (const auto& [name, value] : fields.object().as_object()) {
    if (holds(read_fields(family), name) || holds(passed_over_fields(), name)) continue;
    const auto same_name = [&name = name](const auto& field) { return field.name == name; };
    const auto fixed = fixed_fields(family);
    if (const auto at = std::find_if(fixed.begin(), fixed.end(), same_name); at != fixed.end()) {
      if (!is_legal(*at, value)) {
        fields.refuse(name, shown(value), std::string(at->rule), std::string(at->legal));
      }
      continue;
    }
    const auto foreign = foreign_fields();
    if (const auto at = std::find_if(foreign.begin(), foreign.end(), same_name); at != foreign.end()) {
      if (!is_switched_off(value)) fields.refuse(name, shown(value), std::string(at->rule));
      continue;
    }
    fields.refuse(name, shown(value),
                  fmt::format("{} has no such field that is known here, and an unknown field may change the result",
                              family_name(family)),
                  nearest_word(name, known_fields(family)));
  }
}

void check_keys(FieldReader& fields, std::string_view type, const std::vector<std::string>& legal) {
  for (const auto& [key, value] : fields.object().as_object()) {
    if (std::find(legal.begin(), legal.end(), key) != legal.end()) continue;
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
  config.rope_theta = rope.number_or("rope_theta", config.rope_theta, kAtLeastOne);
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

void parse_rope(FieldReader& fields, Config& config) {
  config.position = PositionKind::kRotary;
  config.rope_theta = fields.number_or("rope_theta", 10000.0, kAtLeastOne);
  const Json* scaling = fields.given("rope_scaling");
  const Json* parameters = fields.given("rope_parameters");
  if (scaling != nullptr && parameters != nullptr) {
    fields.refuse("rope_scaling", shown(*scaling), "must not be given beside rope_parameters", "keep one of the two");
  }
  const Json* object = scaling != nullptr ? scaling : parameters;
  if (object == nullptr || !fields.ok()) return;
  const std::string_view name = scaling != nullptr ? "rope_scaling" : "rope_parameters";
  if (!object->is_object()) {
    fields.refuse(name, shown(*object), "must be an object or null");
    return;
  }
  const double outer_theta = config.rope_theta;
  FieldReader rope(*object, fields.option(name));
  parse_rope_object(rope, config);
  if (!rope.ok()) {
    fields.adopt(rope.failure());
  } else if (fields.given("rope_theta") != nullptr && config.rope_theta != outer_theta) {
    fields.refuse("rope_theta", fmt::format("{}", outer_theta),
                  fmt::format("contradicts {}'s rope_theta ({})", name, config.rope_theta));
  }
}

void parse_gpt2(FieldReader& fields, Config& config) {
  config.hidden = fields.size("n_embd");
  config.layers = fields.size("n_layer", kMaxLayers);
  config.vocabulary = fields.size("vocab_size");
  config.heads = fields.size_or("n_head", 12);
  config.kv_heads = config.heads;
  config.ffn = fields.size_or_null("n_inner", 4 * config.hidden);
  config.max_positions = fields.size_or("n_positions", 1024);
  // Old files say the context length twice.
  if (fields.given("n_ctx") != nullptr && fields.size_or("n_ctx", 1) != config.max_positions) {
    fields.refuse("n_ctx", shown(*fields.given("n_ctx")),
                  fmt::format("contradicts n_positions ({})", config.max_positions));
  }
  config.norm = NormKind::kLayerNorm;
  config.norm_epsilon = fields.number_or("layer_norm_epsilon", 1e-5, kSmall);
  config.activation = parse_activation(fields, "activation_function", "gelu_new");
  config.gated_mlp = false;
  config.attention_input_bias = config.attention_output_bias = config.mlp_bias = true;
  config.tied_embeddings = fields.flag_or("tie_word_embeddings", true);
  config.position = PositionKind::kLearned;
  config.embedding_dropout = fields.number_or("embd_pdrop", 0.1, kFraction);
  config.attention_dropout = fields.number_or("attn_pdrop", 0.1, kFraction);
  config.residual_dropout = fields.number_or("resid_pdrop", 0.1, kFraction);
  config.bos_token = fields.token_or("bos_token_id", 50256, config.vocabulary);
  config.eos_token = fields.token_or("eos_token_id", 50256, config.vocabulary);
  if (!fields.ok()) return;
  if (config.hidden % config.heads != 0) {
    fields.refuse("n_head", std::to_string(config.heads), fmt::format("must divide n_embd ({})", config.hidden));
    return;
  }
  config.head_dim = config.hidden / config.heads;
}

void parse_llama(FieldReader& fields, Config& config) {
  config.hidden = fields.size("hidden_size");
  config.ffn = fields.size("intermediate_size");
  config.layers = fields.size("num_hidden_layers", kMaxLayers);
  config.vocabulary = fields.size("vocab_size");
  config.heads = fields.size("num_attention_heads");
  config.kv_heads = fields.size_or_null("num_key_value_heads", config.heads);
  config.head_dim = fields.size_or_null("head_dim", config.hidden / config.heads);
  config.max_positions = fields.size_or("max_position_embeddings", 2048);
  config.norm = NormKind::kRmsNorm;
  config.norm_epsilon = fields.number_or("rms_norm_eps", 1e-6, kSmall);
  config.activation = parse_activation(fields, "hidden_act", "silu");
  config.gated_mlp = true;
  config.attention_input_bias = config.attention_output_bias = fields.flag_or("attention_bias", false);
  config.mlp_bias = fields.flag_or("mlp_bias", false);
  config.tied_embeddings = fields.flag_or("tie_word_embeddings", false);
  config.attention_dropout = fields.number_or("attention_dropout", 0.0, kFraction);
  config.bos_token = fields.token_or("bos_token_id", 1, config.vocabulary);
  config.eos_token = fields.token_or("eos_token_id", 2, config.vocabulary);
  parse_rope(fields, config);
  if (!fields.ok()) return;
  if (config.heads % config.kv_heads != 0) {
    fields.refuse("num_key_value_heads", std::to_string(config.kv_heads),
                  fmt::format("must divide num_attention_heads ({})", config.heads));
  }
  if (fields.given("head_dim") == nullptr && config.hidden % config.heads != 0) {
    fields.refuse("num_attention_heads", std::to_string(config.heads),
                  fmt::format("must divide hidden_size ({}) where head_dim is not given", config.hidden));
  }
  if (config.head_dim % 2 != 0) {
    fields.refuse("head_dim", std::to_string(config.head_dim), "must be even, since rotary embeddings turn pairs",
                  fmt::format("{}, {}", std::max<std::int64_t>(2, config.head_dim - 1), config.head_dim + 1));
  }
}

// In floating point, since the point is to find what would overflow.
void check_total(FieldReader& fields, const Config& config) {
  const auto real = [](std::int64_t value) { return static_cast<double>(value); };
  const double head_dim = real(config.head_dim);
  const double attention = 2.0 * (real(config.heads) + real(config.kv_heads)) * head_dim;
  const double mlp = (config.gated_mlp ? 3.0 : 2.0) * real(config.ffn);
  const double rows =
      real(config.layers) * (attention + mlp) + 2.0 * real(config.vocabulary) + real(config.max_positions);
  if (rows * real(config.hidden) < kMaxParameters) return;
  fields.refuse("parameters", fmt::format("about {:.2g}", rows * real(config.hidden)),
                fmt::format("must be below {:.0e}", kMaxParameters), "look for a size with digits too many");
}

}  // namespace

Result<Config> parse_config(const Json& document, const std::string& what) {
  FieldReader fields(document, what);
  if (!document.is_object()) {
    return Failure{what, shown(document), fmt::format("must hold one object, holds {}", document.type_name()), ""};
  }
  const Json* type = document.find("model_type");
  if (type == nullptr) {
    return Failure{fields.option("model_type"), "", "the field is missing", "gpt2, llama"};
  }
  const bool is_gpt2 = *type == Json("gpt2");
  if (!is_gpt2 && *type != Json("llama")) {
    return Failure{fields.option("model_type"), type->is_string() ? type->as_string() : shown(*type),
                   "this model family is not supported", "gpt2, llama"};
  }
  Config config;
  config.family = is_gpt2 ? Family::kGpt2 : Family::kLlama;
  check_unknown_fields(fields, config.family);
  if (is_gpt2) {
    parse_gpt2(fields, config);
  } else {
    parse_llama(fields, config);
  }
  config.initializer_range = fields.number_or("initializer_range", 0.02, kFraction);
  if (fields.ok()) check_total(fields, config);
  if (!fields.ok()) return fields.failure();
  return config;
}

}  // namespace trireme::model
