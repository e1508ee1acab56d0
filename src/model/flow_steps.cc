#include "model/flow_steps.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"

namespace trireme::model {
namespace {

constexpr std::array kOpNames = std::to_array<std::string_view>({
    "lookup",
    "sum with positions",
    "linear",
    "bias",
    "norm",
    "norm from its statistics",
    "head norm",
    "sum of squares",
    "norm from sums of squares",
    "scale",
    "rotary",
    "attention",
    "activation",
    "dropout",
    "residual sum",
    "row maximum",
    "sum of exponentials",
    "cross-entropy",
    "cross-entropy's gradient",
    "linear's input gradient",
    "linear's weight gradient",
    "bias gradient",
    "norm's gradient",
    "head norm's gradient",
    "dot product of a norm's rows",
    "norm's gradient from dot products",
    "scale's gradient",
    "rotary's gradient",
    "attention's gradient",
    "activation's gradient",
    "dropout's gradient",
    "sum of gradients",
    "lookup's gradient",
    "positions' gradient",
    "all-reduce",
    "all-reduce of maxima",
    "reduce-scatter",
    "all-gather",
});
static_assert(kOpNames.size() == kFlowOpCount);

bool is_weight(const Parameter& parameter) { return parameter.shape.size() > 1; }

using Names = std::vector<std::string>;

class Derivation {
 public:
  explicit Derivation(const UnitFlow& flow) : flow_(flow) { made_.values = flow.values; }

  FlowSteps make() {
    each(FlowPass::kForward, &Derivation::forward, false);
    if (flow_.kind == UnitKind::kHead) {
      add_loss_values();
      each(FlowPass::kLoss, &Derivation::loss, false);
      // A weight's gradient cannot wait for what exists a block of rows at a time.
      both_ = true;
      each(FlowPass::kBackwardInput, &Derivation::backward, true);
    } else {
      if (flow_.output >= 0) gradient_[flow_.output] = gradient_value(flow_.output);
      const bool input = flow_.kind != UnitKind::kEmbedding;
      if (input) each(FlowPass::kBackwardInput, &Derivation::backward, true);
      both_ = !input;
      each(FlowPass::kBackwardWeight, input ? &Derivation::weights : &Derivation::backward, true);
    }
    return std::move(made_);
  }

 private:
  using Rule = void (Derivation::*)(const Operation&);

  void each(FlowPass pass, Rule rule, bool reversed) {
    pass_ = pass;
    const int count = static_cast<int>(flow_.operations.size());
    for (int i = 0; i < count; ++i) {
      operation_ = reversed ? count - 1 - i : i;
      (this->*rule)(flow_.operations[static_cast<std::size_t>(operation_)]);
    }
  }

  const FlowValue& at(int value) const { return flow_.values[static_cast<std::size_t>(value)]; }
  std::string name(int value) const { return at(value).name; }
  Names names(const std::vector<int>& values) const {
    Names all;
    for (int value : values) all.push_back(name(value));
    return all;
  }
  static std::vector<Role> roles(const Operation& o) {
    std::vector<Role> all;
    for (const Parameter& parameter : o.parameters) all.push_back(parameter.role);
    return all;
  }

  FlowStep& step(FlowOp op, Names reads, Names writes, std::vector<Role> parameters = {}) {
    return made_.steps.emplace_back(FlowStep{.pass = pass_,
                                             .op = op,
                                             .reads = std::move(reads),
                                             .writes = std::move(writes),
                                             .parameters = std::move(parameters),
                                             .operation = operation_});
  }
  FlowStep& block(FlowOp op, Names reads, Names writes, std::vector<Role> parameters = {}) {
    FlowStep& made = step(op, std::move(reads), std::move(writes), std::move(parameters));
    made.by_block = true;
    return made;
  }

  // The gradient of a value, of its shape.
  std::string gradient_value(int of) {
    FlowValue value = at(of);
    value.name = gradient_name(value.name);
    const auto same = [&](const FlowValue& known) { return known.name == value.name; };
    if (std::ranges::none_of(made_.values, same)) made_.values.push_back(value);
    return value.name;
  }
  // What is known of a value's gradient so far; complete when the operation that made the value is reached.
  const std::string& gradient(int of) const {
    const auto found = gradient_.find(of);
    TRIREME_CHECK(found != gradient_.end(), "{} has no gradient", name(of));
    return found->second;
  }
  bool has_gradient(int of) const { return gradient_.count(of) > 0; }
  // A value has another reader's share of its gradient too.
  void add_gradient(int of, const std::string& share) {
    if (!has_gradient(of)) {
      gradient_[of] = share;
      return;
    }
    const std::string sum = gradient_value(of);
    step(FlowOp::kSumGradients, {gradient(of), share}, {sum});
    gradient_[of] = sum;
  }
  // A share of its own: in the value's gradient if it is the first.
  std::string share_of(int of) {
    if (!has_gradient(of)) return gradient_value(of);
    FlowValue value = at(of);
    value.name = fmt::format("{}, a share", gradient_name(value.name));
    made_.values.push_back(value);
    return value.name;
  }

  void add_loss_values();
  void forward(const Operation& o);
  void loss(const Operation& o);
  void backward(const Operation& o);
  void weights(const Operation& o);
  void project(const Operation& o);
  void project_gradient(const Operation& o);
  void norm_gradient(const Operation& o);
  void whole_norm(const Operation& o);
  void whole_norm_gradient(const Operation& o);
  void attention_gradient(const Operation& o);
  void activation_gradient(const Operation& o);
  std::string row_sums(const Operation& o, std::string_view what);
  void dropout_gradient(const Operation& o, int of);
  void loss_gradient(const Operation& o);

  const UnitFlow& flow_;
  FlowSteps made_;
  FlowPass pass_ = FlowPass::kForward;
  int operation_ = 0;
  bool both_ = false;                    // one backward pass gives both kinds of gradients
  std::map<int, std::string> gradient_;  // by value
};

void Derivation::add_loss_values() {
  const FlowValue logits{.name = std::string(kLogits),
                         .columns = flow_.vocabulary,
                         .blocks = {{PieceKind::kVocabulary, flow_.vocabulary, 1}},
                         .statistics = true};
  made_.values.push_back(logits);
  made_.values.push_back(logits);
  made_.values.back().name = gradient_name(kLogits);
  for (const auto& [name, columns] : {std::pair{kRowMaxima, 1}, {kRowSums, 2}, {kLosses, 1}}) {
    made_.values.push_back({.name = std::string(name), .columns = columns, .all_rows = true, .statistics = true});
  }
}

void Derivation::project(const Operation& o) {
  std::size_t output = 0;
  for (const Parameter& parameter : o.parameters) {
    if (is_weight(parameter)) {
      step(FlowOp::kLinear, names(o.reads), {name(o.writes[output++])}, {parameter.role});
    } else {
      const std::string y = name(o.writes[output - 1]);
      step(FlowOp::kAddBias, {y}, {y}, {parameter.role});
    }
  }
}

void Derivation::forward(const Operation& o) {
  switch (o.kind) {
    case OperationKind::kLookup:
      step(FlowOp::kLookup, {}, names(o.writes), roles(o));
      return;
    case OperationKind::kPositions:
      step(FlowOp::kAddPositions, names(o.reads), names(o.writes), roles(o));
      return;
    case OperationKind::kDropout:
      step(FlowOp::kDropout, names(o.reads), names(o.writes));
      return;
    case OperationKind::kNorm:
      step(FlowOp::kNorm, names(o.reads), names(o.writes), roles(o));
      return;
    case OperationKind::kProject:
    case OperationKind::kProjectBack:
      return project(o);
    case OperationKind::kHeadNorm:
      step(FlowOp::kHeadNorm, names(o.reads), names(o.writes), roles(o));
      return;
    case OperationKind::kWholeNorm:
      return whole_norm(o);
    case OperationKind::kScale:
      step(FlowOp::kScale, names(o.reads), names(o.writes));
      return;
    case OperationKind::kRotary:
      step(FlowOp::kRotary, names(o.reads), names(o.writes));
      return;
    case OperationKind::kAttention:
      step(FlowOp::kAttention, names(o.reads), names(o.writes));
      return;
    case OperationKind::kActivation:
      step(FlowOp::kActivation, names(o.reads), names(o.writes));
      return;
    case OperationKind::kAdd:
      step(FlowOp::kAdd, names(o.reads), names(o.writes), roles(o));
      return;
    case OperationKind::kLoss:
      return;  // in passes of its own
  }
}

void Derivation::loss(const Operation& o) {
  if (o.kind != OperationKind::kLoss) return;
  block(FlowOp::kLinear, names(o.reads), {std::string(kLogits)}, {Role::kHeadWeight});
  block(FlowOp::kRowMaximum, {std::string(kLogits)}, {std::string(kRowMaxima)});
  block(FlowOp::kSoftmaxSum, {std::string(kLogits), std::string(kRowMaxima)}, {std::string(kRowSums)});
  block(FlowOp::kCrossEntropy, {std::string(kRowMaxima), std::string(kRowSums)}, {std::string(kLosses)});
}

void Derivation::loss_gradient(const Operation& o) {
  const int x = o.reads.front();
  const std::string d_logits = gradient_name(kLogits), d_x = share_of(x);
  loss(o);
  block(FlowOp::kCrossEntropyGradient, {std::string(kLogits), std::string(kRowMaxima), std::string(kRowSums)},
        {d_logits});
  block(FlowOp::kLinearWeightGradient, {name(x), d_logits}, {}, {Role::kHeadWeight});
  block(FlowOp::kLinearInputGradient, {d_logits}, {d_x}, {Role::kHeadWeight});
  add_gradient(x, d_x);
}

void Derivation::backward(const Operation& o) {
  if (both_ && o.kind != OperationKind::kLoss) weights(o);
  switch (o.kind) {
    case OperationKind::kLookup:
      return;
    case OperationKind::kPositions:
      return add_gradient(o.reads.front(), gradient(o.writes.front()));
    case OperationKind::kDropout:
      return dropout_gradient(o, o.reads.front());
    case OperationKind::kNorm:
      return norm_gradient(o);
    case OperationKind::kProject:
    case OperationKind::kProjectBack:
      return project_gradient(o);
    case OperationKind::kHeadNorm: {
      const std::string d_x = gradient_value(o.reads.front());
      step(FlowOp::kHeadNormGradient, {gradient(o.writes.front()), name(o.reads.front())}, {d_x}, roles(o));
      return add_gradient(o.reads.front(), d_x);
    }
    case OperationKind::kWholeNorm:
      return whole_norm_gradient(o);
    case OperationKind::kScale: {
      const std::string d_x = share_of(o.reads.front());
      step(FlowOp::kScaleGradient, {gradient(o.writes.front())}, {d_x});
      return add_gradient(o.reads.front(), d_x);
    }
    case OperationKind::kRotary: {
      Names d;
      for (int value : o.reads) d.push_back(gradient(value));
      step(FlowOp::kRotaryGradient, d, d);
      return;
    }
    case OperationKind::kAttention:
      return attention_gradient(o);
    case OperationKind::kActivation:
      return activation_gradient(o);
    case OperationKind::kAdd:
      add_gradient(o.reads[0], gradient(o.writes.front()));
      return dropout_gradient(o, o.reads[1]);
    case OperationKind::kLoss:
      return loss_gradient(o);
  }
}

// One product after the other adds to the gradient of what they read, in their order.
void Derivation::project_gradient(const Operation& o) {
  const int x = o.reads.front();
  const std::string d_x = share_of(x);
  std::size_t output = 0;
  for (const Parameter& parameter : o.parameters) {
    if (!is_weight(parameter)) continue;
    const bool first = output == 0;
    step(FlowOp::kLinearInputGradient, {gradient(o.writes[output++])}, {d_x}, {parameter.role}).accumulate = !first;
  }
  add_gradient(x, d_x);
}

// The norm's weights' gradients are taken here too, where their output's gradient exists.
void Derivation::norm_gradient(const Operation& o) {
  const int x = o.reads.front();
  Names reads{gradient(o.writes[0]), name(x), name(o.writes[1])};
  if (has_gradient(x)) reads.push_back(gradient(x));
  const std::string d_x = gradient_value(x);
  step(FlowOp::kNormGradient, std::move(reads), {d_x}, roles(o));
  gradient_[x] = d_x;
}

// What ranks add up of the rows of an operation.
std::string Derivation::row_sums(const Operation& o, std::string_view what) {
  std::string sums = fmt::format("{}, {}", name(o.writes.front()), what);
  made_.values.push_back({.name = sums, .columns = 1, .all_rows = true, .statistics = true});
  return sums;
}

void Derivation::whole_norm(const Operation& o) {
  const std::string sums = row_sums(o, "sums of squares");
  step(FlowOp::kSquareSums, names(o.reads), {sums});
  step(FlowOp::kNormOfSums, {name(o.reads.front()), sums}, names(o.writes), roles(o));
}

// Its weight's gradient is taken here too.
void Derivation::whole_norm_gradient(const Operation& o) {
  const int x = o.reads.front();
  const Names reads{gradient(o.writes[0]), name(x), name(o.writes[1])};
  const std::string dots = row_sums(o, "dot products"), d_x = share_of(x);
  step(FlowOp::kNormDots, reads, {dots}, roles(o));
  step(FlowOp::kNormGradientOfDots, {reads[0], reads[1], reads[2], dots}, {d_x}, roles(o));
  add_gradient(x, d_x);
}

void Derivation::attention_gradient(const Operation& o) {
  Names reads{gradient(o.writes.front())}, writes;
  for (int value : o.reads) reads.push_back(name(value));
  for (int value : o.writes) reads.push_back(name(value));
  for (int value : o.reads) writes.push_back(gradient_[value] = gradient_value(value));
  step(FlowOp::kAttentionGradient, std::move(reads), std::move(writes));
}

void Derivation::activation_gradient(const Operation& o) {
  Names reads{gradient(o.writes.front())}, writes;
  for (int value : o.reads) reads.push_back(name(value));
  for (int value : o.reads) writes.push_back(gradient_[value] = gradient_value(value));
  step(FlowOp::kActivationGradient, std::move(reads), std::move(writes));
}

// Without a dropout it is the output's.
void Derivation::dropout_gradient(const Operation& o, int of) {
  const std::string& d_out = gradient(o.writes.front());
  if (o.probability <= 0.0) return add_gradient(of, d_out);
  const std::string d_x = share_of(of);
  step(FlowOp::kDropoutGradient, {d_out}, {d_x});
  add_gradient(of, d_x);
}

// What waits for the weight pass.
void Derivation::weights(const Operation& o) {
  switch (o.kind) {
    case OperationKind::kLookup:
      step(FlowOp::kLookupGradient, {gradient(o.writes.front())}, {}, roles(o));
      return;
    case OperationKind::kPositions:
      step(FlowOp::kPositionsGradient, {gradient(o.writes.front())}, {}, roles(o));
      return;
    case OperationKind::kProject:
    case OperationKind::kProjectBack: {
      std::size_t output = 0;
      for (const Parameter& parameter : o.parameters) {
        const bool weight = is_weight(parameter);
        const std::string d_y = gradient(o.writes[weight ? output++ : output - 1]);
        if (weight) {
          step(FlowOp::kLinearWeightGradient, {name(o.reads.front()), d_y}, {}, {parameter.role});
        } else {
          step(FlowOp::kBiasGradient, {d_y}, {}, {parameter.role});
        }
      }
      return;
    }
    case OperationKind::kAdd:  // the bias behind a sum
      if (!o.parameters.empty()) step(FlowOp::kBiasGradient, {gradient(o.reads[1])}, {}, roles(o));
      return;
    case OperationKind::kDropout:
    case OperationKind::kNorm:
    case OperationKind::kHeadNorm:
    case OperationKind::kWholeNorm:
    case OperationKind::kScale:
    case OperationKind::kRotary:
    case OperationKind::kAttention:
    case OperationKind::kActivation:
    case OperationKind::kLoss:
      return;  // none, or taken with the input's
  }
}

}  // namespace

std::string_view flow_op_name(FlowOp op) { return kOpNames[static_cast<std::size_t>(op)]; }

bool is_exchange(FlowOp op) { return op >= FlowOp::kAllReduce; }

bool is_product(FlowOp op) {
  return op == FlowOp::kLookup || op == FlowOp::kLinear || op == FlowOp::kLinearInputGradient ||
         op == FlowOp::kLinearWeightGradient || op == FlowOp::kLookupGradient;
}

std::string gradient_name(std::string_view value) { return fmt::format("{} gradient", value); }

FlowSteps flow_steps(const UnitFlow& flow) { return Derivation(flow).make(); }

}  // namespace trireme::model
