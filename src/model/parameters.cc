#include "model/parameters.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"

namespace trireme::model {
namespace {

constexpr std::array kRoleNames = std::to_array<std::string_view>({
    "token embedding",
    "position embedding",
    "norm 1 weight",
    "norm 1 bias",
    "qkv weight",
    "qkv bias",
    "query weight",
    "query bias",
    "key weight",
    "key bias",
    "value weight",
    "value bias",
    "query norm weight",
    "key norm weight",
    "attention output weight",
    "attention output bias",
    "norm 2 weight",
    "norm 2 bias",
    "gate weight",
    "gate bias",
    "up weight",
    "up bias",
    "down weight",
    "down bias",
    "final norm weight",
    "final norm bias",
    "head weight",
});
static_assert(kRoleNames.size() == kRoleCount);

// Adds the parameters of one unit, in order of Role.
class UnitBuilder {
 public:
  UnitBuilder(const Config& config, int unit, std::string prefix, std::vector<Parameter>& parameters)
      : config_(config), unit_(unit), prefix_(std::move(prefix)), parameters_(parameters) {}

  SplitBlock heads() const { return {PieceKind::kHeads, config_.heads, config_.head_dim}; }
  SplitBlock kv_heads() const { return {PieceKind::kKvHeads, config_.kv_heads, config_.head_dim}; }
  SplitBlock features() const { return {PieceKind::kFeatures, config_.ffn, 1}; }
  SplitBlock vocabulary() const { return {PieceKind::kVocabulary, config_.vocabulary, 1}; }

  // A matrix whose `dimension` is cut: every rank computes its own slice's whole gradient.
  Parameter& split_matrix(Role role, std::string_view name, std::int64_t rows, std::int64_t columns, int dimension,
                          std::vector<SplitBlock> blocks) {
    Parameter& parameter = add(role, name, {rows, columns});
    cut(parameter, dimension, std::move(blocks));
    parameter.init = {InitKind::kNormal, config_.initializer_range};
    return parameter;
  }
  Parameter& split_bias(Role role, std::string_view name, std::int64_t length, std::vector<SplitBlock> blocks) {
    Parameter& parameter = add(role, name, {length});
    cut(parameter, 0, std::move(blocks));
    parameter.init = {InitKind::kZeros, 0.0};
    return parameter;
  }
  // Whole on every rank. Its gradient sums over tokens: those of the rank alone under sequence parallelism.
  Parameter& replicated(Role role, std::string_view name, std::vector<std::int64_t> shape, Initialiser init) {
    Parameter& parameter = add(role, name, std::move(shape));
    parameter.gradient = {AxisState::kReplicated, AxisState::kPartial};
    parameter.init = init;
    return parameter;
  }
  Parameter& replicated_bias(Role role, std::string_view name) {
    return replicated(role, name, {config_.hidden}, {InitKind::kZeros, 0.0});
  }
  void norm(Role weight, std::string_view name) {
    const InitKind init = config_.family == Family::kGemma ? InitKind::kZeros : InitKind::kOnes;
    replicated(weight, fmt::format("{}.weight", name), {config_.hidden}, {init, 0.0});
    if (config_.norm != NormKind::kLayerNorm) return;
    replicated_bias(static_cast<Role>(static_cast<int>(weight) + 1), fmt::format("{}.bias", name));
  }
  // One weight for all heads: a rank's gradient sums over its own heads alone.
  void head_norm(Role weight, std::string_view name) {
    replicated(weight, name, {config_.head_dim}, {InitKind::kOnes, 0.0}).gradient.plain = AxisState::kPartial;
  }

 private:
  Parameter& add(Role role, std::string_view name, std::vector<std::int64_t> shape) {
    Parameter parameter;
    parameter.name = fmt::format("{}{}", prefix_, name);
    parameter.decay = shape.size() > 1;
    parameter.shape = std::move(shape);
    parameter.unit = unit_;
    parameter.role = role;
    return parameters_.emplace_back(std::move(parameter));
  }
  static void cut(Parameter& parameter, int dimension, std::vector<SplitBlock> blocks) {
    std::int64_t extent = 0;
    for (const SplitBlock& block : blocks) extent += block.count * block.piece;
    TRIREME_CHECK_EQ(extent, parameter.shape[static_cast<std::size_t>(dimension)]);
    parameter.split = {dimension, std::move(blocks)};
    parameter.value = AxisState::kSharded;
    parameter.gradient = {AxisState::kSharded, AxisState::kSharded};
  }

  const Config& config_;
  int unit_;
  std::string prefix_;
  std::vector<Parameter>& parameters_;
};

// Conv1D weights: input first, so columns are cut where a projection is column-parallel, rows where row-parallel.
void add_gpt2_layer(const Config& c, UnitBuilder& unit) {
  const std::int64_t qkv = c.query_width() + 2 * c.kv_width();
  const std::vector<SplitBlock> qkv_blocks = {unit.heads(), unit.kv_heads(), unit.kv_heads()};
  const double residual_deviation = c.initializer_range / std::sqrt(2.0 * static_cast<double>(c.layers));
  unit.norm(Role::kNorm1Weight, "ln_1");
  unit.split_matrix(Role::kQkvWeight, "attn.c_attn.weight", c.hidden, qkv, 1, qkv_blocks);
  unit.split_bias(Role::kQkvBias, "attn.c_attn.bias", qkv, qkv_blocks);
  unit.split_matrix(Role::kAttentionOutputWeight, "attn.c_proj.weight", c.query_width(), c.hidden, 0, {unit.heads()})
      .init.standard_deviation = residual_deviation;
  unit.replicated_bias(Role::kAttentionOutputBias, "attn.c_proj.bias");
  unit.norm(Role::kNorm2Weight, "ln_2");
  unit.split_matrix(Role::kUpWeight, "mlp.c_fc.weight", c.hidden, c.ffn, 1, {unit.features()});
  unit.split_bias(Role::kUpBias, "mlp.c_fc.bias", c.ffn, {unit.features()});
  unit.split_matrix(Role::kDownWeight, "mlp.c_proj.weight", c.ffn, c.hidden, 0, {unit.features()})
      .init.standard_deviation = residual_deviation;
  unit.replicated_bias(Role::kDownBias, "mlp.c_proj.bias");
}

// Linear weights: output first, so rows are cut where a projection is column-parallel, columns where row-parallel.
void add_llama_layer(const Config& c, UnitBuilder& unit) {
  const auto column_parallel = [&](Role weight, Role bias, std::string_view name, std::int64_t width, SplitBlock block,
                                   bool has_bias) {
    unit.split_matrix(weight, fmt::format("{}.weight", name), width, c.hidden, 0, {block});
    if (has_bias) unit.split_bias(bias, fmt::format("{}.bias", name), width, {block});
  };
  const auto row_parallel = [&](Role weight, Role bias, std::string_view name, std::int64_t width, SplitBlock block,
                                bool has_bias) {
    unit.split_matrix(weight, fmt::format("{}.weight", name), c.hidden, width, 1, {block});
    if (has_bias) unit.replicated_bias(bias, fmt::format("{}.bias", name));
  };
  const bool qkv_bias = c.attention_input_bias;
  unit.norm(Role::kNorm1Weight, "input_layernorm");
  column_parallel(Role::kQueryWeight, Role::kQueryBias, "self_attn.q_proj", c.query_width(), unit.heads(), qkv_bias);
  column_parallel(Role::kKeyWeight, Role::kKeyBias, "self_attn.k_proj", c.kv_width(), unit.kv_heads(), qkv_bias);
  column_parallel(Role::kValueWeight, Role::kValueBias, "self_attn.v_proj", c.kv_width(), unit.kv_heads(), qkv_bias);
  if (c.qk_norm) {
    unit.head_norm(Role::kQueryNormWeight, "self_attn.q_norm.weight");
    unit.head_norm(Role::kKeyNormWeight, "self_attn.k_norm.weight");
  }
  row_parallel(Role::kAttentionOutputWeight, Role::kAttentionOutputBias, "self_attn.o_proj", c.query_width(),
               unit.heads(), c.attention_output_bias);
  unit.norm(Role::kNorm2Weight, "post_attention_layernorm");
  column_parallel(Role::kGateWeight, Role::kGateBias, "mlp.gate_proj", c.ffn, unit.features(), c.mlp_bias);
  column_parallel(Role::kUpWeight, Role::kUpBias, "mlp.up_proj", c.ffn, unit.features(), c.mlp_bias);
  row_parallel(Role::kDownWeight, Role::kDownBias, "mlp.down_proj", c.ffn, unit.features(), c.mlp_bias);
}

// Where the families' names differ outside of the layers.
struct OuterNames {
  std::string model;   // prefix
  std::string layers;  // under it
  std::string embedding;
  std::string final_norm;
};
OuterNames outer_names(Family family) {
  if (family == Family::kGpt2) return {"transformer.", "h", "wte.weight", "ln_f"};
  return {"model.", "layers", "embed_tokens.weight", "norm"};
}

void add_embedding(const Config& config, const OuterNames& names, std::vector<Parameter>& parameters) {
  UnitBuilder unit(config, 0, names.model, parameters);
  unit.split_matrix(Role::kTokenEmbedding, names.embedding, config.vocabulary, config.hidden, 0, {unit.vocabulary()})
      .also_used_by_head = config.tied_embeddings;
  if (config.position != PositionKind::kLearned) return;
  unit.replicated(Role::kPositionEmbedding, "wpe.weight", {config.max_positions, config.hidden},
                  {InitKind::kNormal, config.initializer_range});
}

void add_head(const Config& config, const OuterNames& names, std::vector<Parameter>& parameters) {
  const int head = unit_count(config) - 1;
  UnitBuilder(config, head, names.model, parameters).norm(Role::kFinalNormWeight, names.final_norm);
  if (config.tied_embeddings) return;
  UnitBuilder outside(config, head, "", parameters);
  outside.split_matrix(Role::kHeadWeight, "lm_head.weight", config.vocabulary, config.hidden, 0,
                       {outside.vocabulary()});
}

}  // namespace

UnitKind unit_kind(const Config& config, int unit) {
  TRIREME_CHECK(unit >= 0 && unit < unit_count(config), "unit {} of {}", unit, unit_count(config));
  if (unit == 0) return UnitKind::kEmbedding;
  return unit <= config.layers ? UnitKind::kDecoder : UnitKind::kHead;
}

int unit_count(const Config& config) { return static_cast<int>(config.layers) + 2; }

std::string unit_name(const Config& config, int unit) {
  switch (unit_kind(config, unit)) {
    case UnitKind::kEmbedding:
      return "embedding";
    case UnitKind::kDecoder:
      return fmt::format("layer {}", unit - 1);
    case UnitKind::kHead:
      return "head";
  }
  TRIREME_CHECK(false, "unit {}", unit);
}

std::string_view role_name(Role role) { return kRoleNames[static_cast<std::size_t>(role)]; }

std::int64_t Parameter::elements() const {
  std::int64_t count = 1;
  for (std::int64_t extent : shape) count = checked_multiply(count, extent);
  return count;
}

std::int64_t ParameterTable::total() const {
  std::int64_t count = 0;
  for (const Parameter& parameter : parameters) count = checked_add(count, parameter.elements());
  return count;
}

int ParameterTable::find(int unit, Role role) const {
  if (role == Role::kHeadWeight && config.tied_embeddings) {
    return unit == unit_count(config) - 1 ? find(0, Role::kTokenEmbedding) : -1;
  }
  const std::pair<int, Role> wanted{unit, role};
  const auto key = [](const Parameter& parameter) { return std::pair<int, Role>{parameter.unit, parameter.role}; };
  const auto at = std::ranges::lower_bound(parameters, wanted, {}, key);
  if (at == parameters.end() || key(*at) != wanted) return -1;
  return static_cast<int>(at - parameters.begin());
}

int ParameterTable::find(std::string_view name) const {
  const auto at = std::ranges::find(parameters, name, &Parameter::name);
  return at == parameters.end() ? -1 : static_cast<int>(at - parameters.begin());
}

ParameterTable make_parameter_table(const Config& config) {
  ParameterTable table{.config = config, .parameters = {}};
  const OuterNames names = outer_names(config.family);
  add_embedding(config, names, table.parameters);
  for (int layer = 0; layer < config.layers; ++layer) {
    UnitBuilder unit(config, layer + 1, fmt::format("{}{}.{}.", names.model, names.layers, layer), table.parameters);
    if (config.family == Family::kGpt2) {
      add_gpt2_layer(config, unit);
    } else {
      add_llama_layer(config, unit);
    }
  }
  add_head(config, names, table.parameters);
  return table;
}

}  // namespace trireme::model
