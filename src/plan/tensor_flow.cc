#include "plan/tensor_flow.h"

#include <algorithm>
#include <array>

#include "base/check.h"

namespace trireme::plan {
namespace {

using model::Role;
using model::Saved;
using model::saved_name;
using Names = std::vector<std::string_view>;

constexpr std::array kOpNames = std::to_array<std::string_view>({
    "lookup",
    "sum with positions",
    "linear",
    "bias",
    "norm",
    "head norm",
    "elementwise step",
    "attention",
    "row maximum",
    "sum of exponentials",
    "cross-entropy",
    "cross-entropy's gradient",
    "linear's input gradient",
    "linear's weight gradient",
    "bias gradient",
    "norm's gradient",
    "head norm's gradient",
    "attention's gradient",
    "lookup's gradient",
    "positions' gradient",
    "all-reduce",
    "all-reduce of maxima",
    "reduce-scatter",
    "all-gather",
});
static_assert(kOpNames.size() == static_cast<std::size_t>(FlowOp::kAllGather) + 1);

// Values that live inside one pass.
constexpr std::string_view kTokenRows = "token embedding";
constexpr std::string_view kPositioned = "embedding with positions";
constexpr std::string_view kAllNorm1 = "norm 1 output, all rows";
constexpr std::string_view kAllNorm2 = "norm 2 output, all rows";
constexpr std::string_view kAllFinalNorm = "final norm output, all rows";
constexpr std::string_view kProjected = "attention output projection";
constexpr std::string_view kDown = "down projection";
constexpr std::string_view kAllDownGradient = "down projection's gradient, all rows";
constexpr std::string_view kAllProjectionGradient = "attention output projection's gradient, all rows";
constexpr std::string_view kAllOutputGradient = "output gradient, all rows";
constexpr std::string_view kActivatedGradient = "activated gradient";
constexpr std::string_view kAttentionGradient = "attention output gradient";
constexpr std::string_view kNorm1Gradient = "norm 1 output gradient";
constexpr std::string_view kNorm2Gradient = "norm 2 output gradient";
constexpr std::string_view kFinalNormGradient = "final norm output gradient";
constexpr std::string_view kLogits = "logits";
constexpr std::string_view kRowMaxima = "row maxima";
constexpr std::string_view kRowSums = "sums of exponentials and targets' logits";
constexpr std::string_view kLosses = "losses";
constexpr std::string_view kLogitsGradient = "logits gradient";

class FlowBuilder {
 public:
  FlowBuilder(const model::Config& config, const Layout& layout) : config_(config), layout_(layout) {}

  UnitFlow embedding();
  UnitFlow decoder();
  UnitFlow head();

 private:
  struct NormNames {
    Role weight;
    Saved input, output, statistics;
  };
  static constexpr NormNames kNorm1{Role::kNorm1Weight, Saved::kInput, Saved::kNorm1Output, Saved::kNorm1Stats};
  static constexpr NormNames kNorm2{Role::kNorm2Weight, Saved::kMiddle, Saved::kNorm2Output, Saved::kNorm2Stats};
  static constexpr NormNames kFinalNorm{Role::kFinalNormWeight, Saved::kInput, Saved::kFinalNormOutput,
                                        Saved::kFinalNormStats};
  // A column-parallel projection with what it writes and that one's gradient.
  struct Projection {
    Role weight, bias;
    std::string_view output, gradient;
  };

  void step(FlowOp op, Names reads, Names writes, std::vector<Role> parameters = {}) {
    flow_.push_back({.pass = pass_,
                     .op = op,
                     .reads = std::move(reads),
                     .writes = std::move(writes),
                     .parameters = std::move(parameters)});
  }
  void exchange(FlowOp op, std::string_view from, std::string_view to, FlowSize size) {
    step(op, {from}, {to});
    flow_.back().size = size;
  }
  // The borders of a tensor-parallel region. All rows of a value of the residual stream: gathered into `gathered`, or
  // the value itself without sequence parallelism.
  std::string_view all_rows(std::string_view own, std::string_view gathered) {
    if (!layout_.sequence_parallel) return own;
    exchange(FlowOp::kAllGather, own, gathered, FlowSize::kHidden);
    return gathered;
  }
  // The sum of partial values, in place: whole, or this rank's rows.
  void sum_own_rows(std::string_view value) {
    exchange(layout_.sequence_parallel ? FlowOp::kReduceScatter : FlowOp::kAllReduce, value, value, FlowSize::kHidden);
  }

  std::vector<Role> norm_roles(const NormNames& norm) const {
    std::vector<Role> roles{norm.weight};
    const auto bias = static_cast<Role>(static_cast<int>(norm.weight) + 1);
    if (config_.norm == model::NormKind::kLayerNorm) roles.push_back(bias);
    return roles;
  }
  void norm(const NormNames& norm) {
    step(FlowOp::kNorm, {saved_name(norm.input)}, {saved_name(norm.output), saved_name(norm.statistics)},
         norm_roles(norm));
  }
  void norm_again(const NormNames& norm) {
    step(FlowOp::kNorm, {saved_name(norm.input), saved_name(norm.statistics)}, {saved_name(norm.output)},
         norm_roles(norm));
  }
  void norm_gradient(const NormNames& norm, Names more, std::string_view d_output, std::string_view d_input) {
    Names reads{d_output, saved_name(norm.input), saved_name(norm.statistics)};
    reads.insert(reads.end(), more.begin(), more.end());
    step(FlowOp::kNormGradient, std::move(reads), {d_input}, norm_roles(norm));
  }
  // y = x W, and y + b apart: behind a row-parallel projection the sum comes between.
  void linear(std::string_view x, Role weight, std::string_view y) { step(FlowOp::kLinear, {x}, {y}, {weight}); }
  void bias(std::string_view y, Role role, bool has) {
    if (has) step(FlowOp::kAddBias, {y}, {y}, {role});
  }
  void linear_input_gradient(std::string_view d_y, Role weight, std::string_view d_x, bool accumulate = false) {
    step(FlowOp::kLinearInputGradient, {d_y}, {d_x}, {weight});
    flow_.back().accumulate = accumulate;
  }
  void weight_gradient(std::string_view x, std::string_view d_y, Role weight) {
    step(FlowOp::kLinearWeightGradient, {x, d_y}, {}, {weight});
  }
  void bias_gradient(std::string_view d_y, Role role, bool has) {
    if (has) step(FlowOp::kBiasGradient, {d_y}, {}, {role});
  }

  std::vector<Projection> projections() const;
  std::vector<Projection> mlp_projections() const;
  std::string_view projection_output(const Projection& projection) const;  // before a head norm
  void row_parallel_residual(std::string_view x, Role weight, Role bias_role, bool has_bias, std::string_view y,
                             std::string_view residual, std::string_view out);
  void attention_half();
  void mlp_inside();
  void activate();
  void decoder_recompute();
  void mlp_backward_input();
  void attention_backward_input();
  void decoder_backward_weight();
  // The gradient of a row-parallel projection's output: another value than the residual's behind a dropout.
  std::string_view projection_gradient(Saved kept, Saved otherwise) const {
    return saved_name(config_.residual_dropout > 0.0 ? kept : otherwise);
  }
  void logit_block(std::string_view x);

  const model::Config& config_;
  const Layout& layout_;
  Op pass_ = Op::kForward;
  UnitFlow flow_;
};

UnitFlow FlowBuilder::embedding() {
  const bool positions = config_.position == model::PositionKind::kLearned;
  const std::string_view d_out = saved_name(Saved::kOutputGradient);
  step(FlowOp::kLookup, {}, {kTokenRows}, {Role::kTokenEmbedding});
  sum_own_rows(kTokenRows);
  if (positions) step(FlowOp::kAddPositions, {kTokenRows}, {kPositioned}, {Role::kPositionEmbedding});
  step(FlowOp::kElementwise, {positions ? kPositioned : kTokenRows}, {kFlowOutput});  // dropout

  pass_ = Op::kBackwardWeight;
  step(FlowOp::kElementwise, {d_out}, {d_out});
  step(FlowOp::kLookupGradient, {all_rows(d_out, kAllOutputGradient)}, {}, {Role::kTokenEmbedding});
  if (positions) step(FlowOp::kPositionsGradient, {d_out}, {}, {Role::kPositionEmbedding});
  return std::move(flow_);
}

std::vector<FlowBuilder::Projection> FlowBuilder::projections() const {
  if (config_.family == model::Family::kGpt2) {
    return {{Role::kQkvWeight, Role::kQkvBias, saved_name(Saved::kQkv), saved_name(Saved::kQkvGradient)}};
  }
  return {{Role::kQueryWeight, Role::kQueryBias, saved_name(Saved::kQuery), saved_name(Saved::kQueryGradient)},
          {Role::kKeyWeight, Role::kKeyBias, saved_name(Saved::kKey), saved_name(Saved::kKeyGradient)},
          {Role::kValueWeight, Role::kValueBias, saved_name(Saved::kValue), saved_name(Saved::kValueGradient)}};
}

std::vector<FlowBuilder::Projection> FlowBuilder::mlp_projections() const {
  std::vector<Projection> all{{Role::kUpWeight, Role::kUpBias, saved_name(Saved::kUp), saved_name(Saved::kUpGradient)}};
  if (config_.gated_mlp) {
    all.push_back({Role::kGateWeight, Role::kGateBias, saved_name(Saved::kGate), saved_name(Saved::kGateGradient)});
  }
  return all;
}

std::string_view FlowBuilder::projection_output(const Projection& projection) const {
  if (config_.qk_norm && projection.weight == Role::kQueryWeight) return saved_name(Saved::kQueryBeforeNorm);
  if (config_.qk_norm && projection.weight == Role::kKeyWeight) return saved_name(Saved::kKeyBeforeNorm);
  return projection.output;
}

// out = residual + dropout(sum over ranks of x W, + b).
void FlowBuilder::row_parallel_residual(std::string_view x, Role weight, Role bias_role, bool has_bias,
                                        std::string_view y, std::string_view residual, std::string_view out) {
  linear(x, weight, y);
  sum_own_rows(y);
  bias(y, bias_role, has_bias);
  step(FlowOp::kElementwise, {residual, y}, {out});
}

void FlowBuilder::attention_half() {
  norm(kNorm1);
  const std::string_view x = all_rows(saved_name(Saved::kNorm1Output), kAllNorm1);
  Names parts;
  for (const Projection& projection : projections()) {
    linear(x, projection.weight, projection_output(projection));
    bias(projection_output(projection), projection.bias, config_.attention_input_bias);
    parts.push_back(projection.output);
  }
  if (config_.qk_norm) {
    step(FlowOp::kHeadNorm, {saved_name(Saved::kQueryBeforeNorm)}, {saved_name(Saved::kQuery)},
         {Role::kQueryNormWeight});
    step(FlowOp::kHeadNorm, {saved_name(Saved::kKeyBeforeNorm)}, {saved_name(Saved::kKey)}, {Role::kKeyNormWeight});
  }
  step(FlowOp::kAttention, parts, {saved_name(Saved::kAttentionOutput), saved_name(Saved::kLogSumExp)});
  row_parallel_residual(saved_name(Saved::kAttentionOutput), Role::kAttentionOutputWeight, Role::kAttentionOutputBias,
                        config_.attention_output_bias, kProjected, saved_name(Saved::kInput),
                        saved_name(Saved::kMiddle));
}

void FlowBuilder::activate() {
  Names reads;
  for (const Projection& projection : mlp_projections()) reads.push_back(projection.output);
  step(FlowOp::kElementwise, std::move(reads), {saved_name(Saved::kActivated)});
}

void FlowBuilder::mlp_inside() {
  norm(kNorm2);
  const std::string_view x = all_rows(saved_name(Saved::kNorm2Output), kAllNorm2);
  for (const Projection& projection : mlp_projections()) {
    linear(x, projection.weight, projection.output);
    bias(projection.output, projection.bias, config_.mlp_bias);
  }
  activate();
}

void FlowBuilder::decoder_recompute() {
  switch (layout_.recompute) {
    case model::Recompute::kNone:
      return;
    case model::Recompute::kSelective:
      norm_again(kNorm1);
      norm_again(kNorm2);
      return activate();
    case model::Recompute::kFull:  // the down projection is not needed again
      attention_half();
      return mlp_inside();
  }
}

void FlowBuilder::mlp_backward_input() {
  const std::string_view d_out = saved_name(Saved::kOutputGradient);
  const std::string_view d_down = projection_gradient(Saved::kDownGradient, Saved::kOutputGradient);
  if (d_down != d_out) step(FlowOp::kElementwise, {d_out}, {d_down});
  linear_input_gradient(all_rows(d_down, kAllDownGradient), Role::kDownWeight, kActivatedGradient);
  Names reads{kActivatedGradient}, writes;
  for (const Projection& projection : mlp_projections()) {
    reads.push_back(projection.output);
    writes.push_back(projection.gradient);
  }
  step(FlowOp::kElementwise, std::move(reads), std::move(writes));
  bool accumulate = false;
  for (const Projection& projection : mlp_projections()) {
    linear_input_gradient(projection.gradient, projection.weight, kNorm2Gradient, accumulate);
    accumulate = true;
  }
  sum_own_rows(kNorm2Gradient);
  norm_gradient(kNorm2, {d_out}, kNorm2Gradient, saved_name(Saved::kMiddleGradient));
}

void FlowBuilder::attention_backward_input() {
  const std::string_view d_middle = saved_name(Saved::kMiddleGradient);
  const std::string_view d_projected =
      projection_gradient(Saved::kAttentionOutputProjectionGradient, Saved::kMiddleGradient);
  if (d_projected != d_middle) step(FlowOp::kElementwise, {d_middle}, {d_projected});
  linear_input_gradient(all_rows(d_projected, kAllProjectionGradient), Role::kAttentionOutputWeight,
                        kAttentionGradient);
  Names reads{kAttentionGradient}, gradients;
  for (const Projection& projection : projections()) {
    reads.push_back(projection.output);
    gradients.push_back(projection.gradient);
  }
  step(FlowOp::kAttentionGradient, std::move(reads), gradients);
  if (config_.qk_norm) {
    step(FlowOp::kHeadNormGradient, {saved_name(Saved::kQueryGradient), saved_name(Saved::kQueryBeforeNorm)},
         {saved_name(Saved::kQueryGradient)}, {Role::kQueryNormWeight});
    step(FlowOp::kHeadNormGradient, {saved_name(Saved::kKeyGradient), saved_name(Saved::kKeyBeforeNorm)},
         {saved_name(Saved::kKeyGradient)}, {Role::kKeyNormWeight});
  }
  bool accumulate = false;
  for (const Projection& projection : projections()) {
    linear_input_gradient(projection.gradient, projection.weight, kNorm1Gradient, accumulate);
    accumulate = true;
  }
  sum_own_rows(kNorm1Gradient);
  norm_gradient(kNorm1, {d_middle}, kNorm1Gradient, kFlowInputGradient);
}

// A bias behind a sum takes the gradient's own rows, its projection all of them.
void FlowBuilder::decoder_backward_weight() {
  const std::string_view d_down = projection_gradient(Saved::kDownGradient, Saved::kOutputGradient);
  weight_gradient(saved_name(Saved::kActivated), all_rows(d_down, kAllDownGradient), Role::kDownWeight);
  bias_gradient(d_down, Role::kDownBias, config_.mlp_bias);
  const auto column_parallel = [&](const std::vector<Projection>& all, std::string_view x, bool has_bias) {
    for (const Projection& projection : all) {
      weight_gradient(x, projection.gradient, projection.weight);
      bias_gradient(projection.gradient, projection.bias, has_bias);
    }
  };
  column_parallel(mlp_projections(), all_rows(saved_name(Saved::kNorm2Output), kAllNorm2), config_.mlp_bias);
  const std::string_view d_projected =
      projection_gradient(Saved::kAttentionOutputProjectionGradient, Saved::kMiddleGradient);
  weight_gradient(saved_name(Saved::kAttentionOutput), all_rows(d_projected, kAllProjectionGradient),
                  Role::kAttentionOutputWeight);
  bias_gradient(d_projected, Role::kAttentionOutputBias, config_.attention_output_bias);
  column_parallel(projections(), all_rows(saved_name(Saved::kNorm1Output), kAllNorm1), config_.attention_input_bias);
}

UnitFlow FlowBuilder::decoder() {
  attention_half();
  mlp_inside();
  row_parallel_residual(saved_name(Saved::kActivated), Role::kDownWeight, Role::kDownBias, config_.mlp_bias, kDown,
                        saved_name(Saved::kMiddle), kFlowOutput);
  pass_ = Op::kRecompute;
  decoder_recompute();
  pass_ = Op::kBackwardInput;
  mlp_backward_input();
  attention_backward_input();
  pass_ = Op::kBackwardWeight;
  decoder_backward_weight();
  return std::move(flow_);
}

// Losses of a block of rows: the two sums are one exchange.
void FlowBuilder::logit_block(std::string_view x) {
  linear(x, Role::kHeadWeight, kLogits);
  step(FlowOp::kRowMaximum, {kLogits}, {kRowMaxima});
  exchange(FlowOp::kAllReduceMaximum, kRowMaxima, kRowMaxima, FlowSize::kBlockRows);
  step(FlowOp::kSoftmaxSum, {kLogits, kRowMaxima}, {kRowSums});
  exchange(FlowOp::kAllReduce, kRowSums, kRowSums, FlowSize::kTwiceBlockRows);
  step(FlowOp::kCrossEntropy, {kRowMaxima, kRowSums}, {kLosses});
}

UnitFlow FlowBuilder::head() {
  const std::string_view output = saved_name(Saved::kFinalNormOutput);
  norm(kFinalNorm);
  pass_ = Op::kEvaluateLoss;
  logit_block(all_rows(output, kAllFinalNorm));
  pass_ = Op::kRecompute;
  if (layout_.recompute == model::Recompute::kSelective) norm_again(kFinalNorm);
  if (layout_.recompute == model::Recompute::kFull) norm(kFinalNorm);
  pass_ = Op::kBackwardInput;
  const std::string_view x = all_rows(output, kAllFinalNorm);
  logit_block(x);
  step(FlowOp::kCrossEntropyGradient, {kLogits, kRowMaxima, kRowSums}, {kLogitsGradient});
  weight_gradient(x, kLogitsGradient, Role::kHeadWeight);
  linear_input_gradient(kLogitsGradient, Role::kHeadWeight, kFinalNormGradient);
  sum_own_rows(kFinalNormGradient);
  norm_gradient(kFinalNorm, {}, kFinalNormGradient, kFlowInputGradient);
  return std::move(flow_);
}

}  // namespace

std::string_view flow_op_name(FlowOp op) { return kOpNames[static_cast<std::size_t>(op)]; }

bool is_exchange(FlowOp op) { return op >= FlowOp::kAllReduce; }

UnitFlow unit_flow(const model::Config& config, const Layout& layout, model::UnitKind kind) {
  FlowBuilder builder(config, layout);
  switch (kind) {
    case model::UnitKind::kEmbedding:
      return builder.embedding();
    case model::UnitKind::kDecoder:
      return builder.decoder();
    case model::UnitKind::kHead:
      return builder.head();
  }
  TRIREME_CHECK(false, "unit kind {}", static_cast<int>(kind));
}

UnitFlow exchanges_of(const UnitFlow& flow) {
  UnitFlow exchanges;
  std::ranges::copy_if(flow, std::back_inserter(exchanges), [](const FlowStep& step) { return is_exchange(step.op); });
  return exchanges;
}

}  // namespace trireme::plan
