#include "model/flow_builder.h"

#include <utility>

#include <fmt/format.h>

#include "base/check.h"

namespace trireme::model {
namespace {

constexpr std::int64_t kStatistics = 2;  // of a row: mean and reciprocal deviation

Role bias_of(Role weight) { return static_cast<Role>(static_cast<int>(weight) + 1); }

// "norm 1 weight" is of "norm 1".
std::string part_of(Role weight) {
  std::string_view name = role_name(weight);
  constexpr std::string_view kWeight = " weight";
  if (name.ends_with(kWeight)) name.remove_suffix(kWeight.size());
  return std::string(name);
}

std::int64_t columns_of(const std::vector<SplitBlock>& blocks) {
  std::int64_t columns = 0;
  for (const SplitBlock& block : blocks) columns += block.count * block.piece;
  return columns;
}

// A tensor of which every rank computes its own slice's whole gradient.
Parameter cut(Role role, std::string name, std::vector<std::int64_t> shape, int dimension,
              std::vector<SplitBlock> blocks, Initialiser init) {
  Parameter parameter;
  parameter.name = std::move(name);
  parameter.decay = shape.size() > 1;
  parameter.shape = std::move(shape);
  parameter.role = role;
  parameter.split = {dimension, std::move(blocks)};
  parameter.value = AxisState::kSharded;
  parameter.gradient = {AxisState::kSharded, AxisState::kSharded};
  parameter.init = init;
  TRIREME_CHECK_EQ(columns_of(parameter.split.blocks), parameter.shape[static_cast<std::size_t>(dimension)]);
  return parameter;
}

// Whole on every rank. Its gradient sums over tokens: those of the rank alone under sequence parallelism.
Parameter whole(Role role, std::string name, std::vector<std::int64_t> shape, Initialiser init) {
  Parameter parameter;
  parameter.name = std::move(name);
  parameter.decay = shape.size() > 1;
  parameter.shape = std::move(shape);
  parameter.role = role;
  parameter.gradient = {AxisState::kReplicated, AxisState::kPartial};
  parameter.init = init;
  return parameter;
}

}  // namespace

FlowBuilder::Value FlowBuilder::value(FlowValue value) {
  for (const FlowValue& known : flow_.values) TRIREME_CHECK(known.name != value.name, "{} twice", value.name);
  flow_.values.push_back(std::move(value));
  return static_cast<Value>(flow_.values.size()) - 1;
}

Operation& FlowBuilder::operation(OperationKind kind, std::vector<Value> reads, std::vector<Value> writes) {
  TRIREME_CHECK(!bias_behind_sum_ || kind == OperationKind::kAdd, "{} would lose a bias", operation_name(kind));
  return flow_.operations.emplace_back(Operation{.kind = kind, .reads = std::move(reads), .writes = std::move(writes)});
}

FlowBuilder::Value FlowBuilder::input() { return flow_.input = stream("input"); }

FlowBuilder::Value FlowBuilder::lookup(std::string_view name) {
  const Value out = stream("token embedding");
  Parameter table = cut(Role::kTokenEmbedding, std::string(name), {config_.vocabulary, config_.hidden}, 0,
                        {vocabulary()}, {InitKind::kNormal, config_.initializer_range});
  table.also_used_by_head = config_.tied_embeddings;
  operation(OperationKind::kLookup, {}, {out}).parameters.push_back(std::move(table));
  return out;
}

FlowBuilder::Value FlowBuilder::positions(Value x, std::string_view name) {
  const Value out = stream("embedding with positions");
  operation(OperationKind::kPositions, {x}, {out})
      .parameters.push_back(whole(Role::kPositionEmbedding, std::string(name), {config_.max_positions, config_.hidden},
                                  {InitKind::kNormal, config_.initializer_range}));
  return out;
}

FlowBuilder::Value FlowBuilder::dropout(Value x, std::string_view purpose, double probability) {
  if (probability <= 0.0) return x;
  const Value out = stream(fmt::format("{} after dropout", purpose));
  Operation& made = operation(OperationKind::kDropout, {x}, {out});
  made.dropout = purpose;
  made.probability = probability;
  return out;
}

FlowBuilder::Value FlowBuilder::scale(Value x, double factor) {
  const Value out = stream(fmt::format("{}, scaled", at(x).name));
  operation(OperationKind::kScale, {x}, {out}).factor = factor;
  return out;
}

FlowBuilder::Value FlowBuilder::norm(Value x, Role weight, std::string_view name) {
  const std::string part = part_of(weight);
  const Value out = stream(fmt::format("{} output", part));
  const Value statistics =
      value({.name = fmt::format("{} statistics", part), .columns = kStatistics, .statistics = true});
  Operation& made = operation(OperationKind::kNorm, {x}, {out, statistics});
  made.norm = config_.norm;
  const InitKind init = config_.norm == NormKind::kRmsNormOffset ? InitKind::kZeros : InitKind::kOnes;
  made.parameters.push_back(whole(weight, fmt::format("{}.weight", name), {config_.hidden}, {init, 0.0}));
  if (config_.norm == NormKind::kLayerNorm) {
    made.parameters.push_back(
        whole(bias_of(weight), fmt::format("{}.bias", name), {config_.hidden}, {InitKind::kZeros, 0.0}));
  }
  return out;
}

// out: from the residual stream into blocks, whose dimension of the weight is cut; else back.
Parameter FlowBuilder::matrix(const Projection& projection, bool out) const {
  const bool input_first = config_.family == Family::kGpt2;
  const std::int64_t width = columns_of(projection.blocks);
  const bool rows_cut = out != input_first;
  std::vector<std::int64_t> shape = rows_cut ? std::vector{width, config_.hidden} : std::vector{config_.hidden, width};
  Parameter weight = cut(projection.weight, fmt::format("{}.weight", projection.name), std::move(shape),
                         rows_cut ? 0 : 1, projection.blocks, {InitKind::kNormal, config_.initializer_range});
  weight.input_first = input_first;
  return weight;
}

std::vector<FlowBuilder::Value> FlowBuilder::project(Value x, const std::vector<Projection>& projections) {
  std::vector<Value> outputs;
  std::vector<Parameter> parameters;
  for (const Projection& projection : projections) {
    const std::int64_t width = columns_of(projection.blocks);
    const std::string name = projection.output.empty() ? part_of(projection.weight) : std::string(projection.output);
    outputs.push_back(value({.name = name, .columns = width, .blocks = projection.blocks}));
    parameters.push_back(matrix(projection, true));
    if (!projection.bias) continue;
    parameters.push_back(cut(bias_of(projection.weight), fmt::format("{}.bias", projection.name), {width}, 0,
                             projection.blocks, {InitKind::kZeros, 0.0}));
  }
  operation(OperationKind::kProject, {x}, outputs).parameters = std::move(parameters);
  return outputs;
}

FlowBuilder::Value FlowBuilder::norm_heads(Value x, QkNorm kind, Role weight, std::string_view name,
                                           std::string_view output) {
  const std::vector<SplitBlock> blocks = at(x).blocks;
  const Value out = value({.name = std::string(output), .columns = at(x).columns, .blocks = blocks});
  const std::string tensor = fmt::format("{}.weight", name);
  if (kind == QkNorm::kHeads) {
    Parameter one = whole(weight, tensor, {config_.head_dim}, {InitKind::kOnes, 0.0});
    one.gradient.plain = AxisState::kPartial;  // a rank sums over its own heads alone
    operation(OperationKind::kHeadNorm, {x}, {out}).parameters.push_back(std::move(one));
    return out;
  }
  const Value statistics = value(
      {.name = fmt::format("{} statistics", output), .columns = kStatistics, .all_rows = true, .statistics = true});
  operation(OperationKind::kWholeNorm, {x}, {out, statistics})
      .parameters.push_back(cut(weight, tensor, {columns_of(blocks)}, 0, blocks, {InitKind::kOnes, 0.0}));
  return out;
}

void FlowBuilder::rotary(std::vector<Value> x) {
  std::vector<Value> same = x;
  operation(OperationKind::kRotary, std::move(x), std::move(same));
}

FlowBuilder::Value FlowBuilder::attention(std::vector<Value> parts, std::int64_t window) {
  const Value out = value({.name = "attention output", .columns = config_.query_width(), .blocks = {heads()}});
  const Value log_sum_exp = value({.name = "log-sum-exp",
                                   .columns = config_.heads,
                                   .blocks = {{PieceKind::kHeads, config_.heads, 1}},
                                   .statistics = true,
                                   .heads_first = true});
  Operation& made = operation(OperationKind::kAttention, std::move(parts), {out, log_sum_exp});
  made.dropout = "attention";
  made.probability = config_.attention_dropout;
  made.window = window;
  return out;
}

FlowBuilder::Value FlowBuilder::activation(Value up) {
  const Value out = value({.name = "activated", .columns = config_.ffn, .blocks = {features()}});
  operation(OperationKind::kActivation, {up}, {out});
  return out;
}

FlowBuilder::Value FlowBuilder::activation(Value gate, Value up) {
  const Value out = activation(up);
  flow_.operations.back().reads.push_back(gate);
  return out;
}

FlowBuilder::Value FlowBuilder::project_back(Value x, const Projection& projection, double deviation) {
  const Value out = stream(fmt::format("{} projection", part_of(projection.weight)));
  Parameter weight = matrix(projection, false);
  weight.init.standard_deviation = deviation;
  operation(OperationKind::kProjectBack, {x}, {out}).parameters.push_back(std::move(weight));
  if (projection.bias) {
    bias_behind_sum_ = whole(bias_of(projection.weight), fmt::format("{}.bias", projection.name), {config_.hidden},
                             {InitKind::kZeros, 0.0});
  }
  return out;
}

FlowBuilder::Value FlowBuilder::add(std::string_view name, Value residual, Value x, std::string_view dropout_purpose) {
  const Value out = stream(std::string(name));
  Operation& made = operation(OperationKind::kAdd, {residual, x}, {out});
  made.dropout = dropout_purpose;
  made.probability = config_.residual_dropout;
  if (bias_behind_sum_) made.parameters.push_back(*std::exchange(bias_behind_sum_, std::nullopt));
  return out;
}

void FlowBuilder::loss(Value x, std::optional<std::string_view> own_weight) {
  Operation& made = operation(OperationKind::kLoss, {x}, {});
  flow_.vocabulary = config_.vocabulary;
  if (!own_weight) return;
  made.parameters.push_back(cut(Role::kHeadWeight, std::string(*own_weight), {config_.vocabulary, config_.hidden}, 0,
                                {vocabulary()}, {InitKind::kNormal, config_.initializer_range}));
}

UnitFlow FlowBuilder::finish(Value output) {
  TRIREME_CHECK(!bias_behind_sum_, "a bias is added nowhere");
  flow_.output = output;
  if (output >= 0) flow_.values[static_cast<std::size_t>(output)].name = "output";
  return std::move(flow_);
}

}  // namespace trireme::model
