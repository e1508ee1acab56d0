#include <array>
#include <map>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "base/check.h"
#include "plan/slices.h"
#include "plan/tensor_flow.h"

namespace trireme::plan {
namespace {

using model::AxisState;
using model::PieceKind;
using model::Role;

struct ValueState {
  FlowState state = FlowState::kWhole;
  PieceKind pieces = PieceKind::kHeads;  // kSplit
  // kSplit, gradients of shared key/value heads: each rank has what its own queries add.
  bool parts = false;
  friend bool operator==(const ValueState&, const ValueState&) = default;
};
constexpr ValueState kWhole{FlowState::kWhole};
constexpr ValueState kRows{FlowState::kRows};
constexpr ValueState kPartial{FlowState::kPartial};
ValueState split(PieceKind pieces, bool parts = false) { return {FlowState::kSplit, pieces, parts}; }

std::string_view pieces_name(PieceKind pieces) {
  constexpr std::array kNames =
      std::to_array<std::string_view>({"heads", "key/value heads", "features", "vocabulary rows"});
  return kNames[static_cast<std::size_t>(pieces)];
}

std::string describe(const ValueState& is) {
  switch (is.state) {
    case FlowState::kWhole:
      return "whole";
    case FlowState::kSplit:
      return fmt::format("cut by {}{}", pieces_name(is.pieces), is.parts ? ", and parts of a sum" : "");
    case FlowState::kRows:
      return "of the rank's own rows";
    case FlowState::kPartial:
      return "partial";
    case FlowState::kPartialMaximum:
      return "a partial maximum";
  }
  TRIREME_CHECK(false, "flow state {}", static_cast<int>(is.state));
}

std::string_view state_name(AxisState state) {
  return state == AxisState::kReplicated ? "whole" : state == AxisState::kSharded ? "cut" : "partial";
}

std::string_view pass_name(Op pass) { return pass == Op::kEvaluateLoss ? "loss" : op_name(pass); }

// How a projection cuts its output and its input.
enum class WeightCut { kNone, kOutput, kInput };

class UnitCheck {
 public:
  UnitCheck(const model::ParameterTable& table, const Layout& layout, int unit)
      : table_(table), layout_(layout), unit_(unit) {
    const model::UnitKind kind = model::unit_kind(table.config, unit);
    for (const model::SavedActivation& entry : model::activation_table(table.config, kind)) {
      kept_.emplace(model::saved_name(entry.name), entry);
      // What the units before and after this one give.
      const bool given = entry.name == model::Saved::kInput || entry.name == model::Saved::kOutputGradient;
      if (given) values_[model::saved_name(entry.name)] = residual();
    }
  }

  Status run(const UnitFlow& flow) {
    for (const FlowStep& step : flow) {
      if (step.pass != pass_) next_pass(step.pass);
      step_ = &step;
      take(step);
      if (fault_) return *fault_;
    }
    step_ = nullptr;
    for (const model::Parameter& parameter : table_.parameters) {
      if (parameter.unit != unit_ || given_.count({parameter.name, false}) > 0) continue;
      refuse(parameter.name, "no step gives the parameter's gradient");
    }
    return fault_ ? Status(*fault_) : ok_status();
  }

 private:
  ValueState residual() const { return layout_.sequence_parallel ? kRows : kWhole; }
  bool shares_kv_heads() const { return layout_.tp > table_.config.kv_heads; }

  void refuse(std::string_view value, std::string rule) {
    if (fault_) return;
    std::string where = fmt::format("tensor axis, {}", model::unit_name(table_.config, unit_));
    if (step_ != nullptr) where += fmt::format(", {}", pass_name(step_->pass));
    fault_ = Failure{.option = std::move(where),
                     .value = std::string(value),
                     .rule = std::move(rule),
                     .nearest = "",
                     .code = ExitCode::kInternal};
  }
  // The step at hand, with its first parameter: "norm of model.norm.weight".
  std::string reader() const {
    std::string text{flow_op_name(step_->op)};
    if (step_->parameters.empty()) return text;
    const int index = table_.find(unit_, step_->parameters.front());
    if (index >= 0) text += fmt::format(" of {}", table_.parameters[static_cast<std::size_t>(index)].name);
    return text;
  }
  void misuse(std::string_view value, const ValueState& is, std::string_view needed) {
    refuse(value, fmt::format("is {}, and {} needs it {}", describe(is), reader(), needed));
  }

  // What an earlier pass made and the activation table keeps until this one.
  bool lives(std::string_view name) const {
    const auto found = kept_.find(name);
    if (found == kept_.end()) return false;
    using model::ActivationGroup;
    const ActivationGroup group = model::group_of(found->second, layout_.recompute);
    if (pass_ == Op::kRecompute || (pass_ == Op::kBackwardInput && recomputed_.count(name) == 0)) {
      return group != ActivationGroup::kRemade && group != ActivationGroup::kRemadeForWeight;
    }
    if (pass_ != Op::kBackwardWeight) return true;
    return group == ActivationGroup::kKeptForWeight || group == ActivationGroup::kRemadeForWeight ||
           group == ActivationGroup::kOutputGradient || group == ActivationGroup::kGradient;
  }
  void next_pass(Op pass) {
    pass_ = pass;
    std::erase_if(values_, [&](const auto& value) { return !lives(value.first); });
  }

  ValueState read(std::string_view name) {
    const auto found = values_.find(name);
    if (found != values_.end()) return found->second;
    refuse(name, fmt::format("is read by {}, and no step of this pass has written it, nor is it kept", reader()));
    return kWhole;
  }
  ValueState read(std::size_t index) { return read(step_->reads[index]); }

  void write(std::string_view name, const ValueState& state) {
    if (step_->accumulate && read(name) != state) return misuse(name, read(name), describe(state));
    values_[name] = state;
    if ((name == kFlowOutput || name == kFlowInputGradient) && state != residual()) {
      return refuse(
          name, fmt::format("is {}, and the unit at its other end needs it {}", describe(state), describe(residual())));
    }
    const auto kept = kept_.find(name);
    if (kept == kept_.end()) return;
    if (pass_ == Op::kRecompute) recomputed_.insert(name);
    const bool as_declared = kept->second.split == model::ActivationSplit::kTensor ? state.state == FlowState::kSplit
                             : kept->second.split == model::ActivationSplit::kSequence ? state == residual()
                                                                                       : state == kWhole;
    if (!as_declared) refuse(name, fmt::format("is {}, unlike what the activation table keeps", describe(state)));
  }
  void write_all(const ValueState& state) {
    for (std::string_view name : step_->writes) write(name, state);
  }

  // Reads that must be whole, of all rows.
  void need_whole(std::size_t index) {
    const ValueState is = read(index);
    if (is != kWhole) misuse(step_->reads[index], is, "whole, of all rows");
  }
  // Reads that must have all columns: whole, or rows.
  ValueState need_columns(std::size_t index) {
    const ValueState is = read(index);
    if (is != kWhole && is != kRows) misuse(step_->reads[index], is, "whole, or of own rows");
    return is;
  }
  void need_same(std::size_t index, const ValueState& as) {
    const ValueState is = read(index);
    if (is != as) misuse(step_->reads[index], is, describe(as));
  }
  ValueState need_split(std::size_t index) {
    const ValueState is = read(index);
    if (is.state != FlowState::kSplit) misuse(step_->reads[index], is, "cut by heads, features or vocabulary");
    return is;
  }

  // nullptr, and a fault, where the table has no such parameter.
  const model::Parameter* parameter(Role role) {
    const int index = table_.find(unit_, role);
    if (index >= 0) return &table_.parameters[static_cast<std::size_t>(index)];
    refuse(model::role_name(role), "is used, and the parameter table has none in this unit");
    return nullptr;
  }
  WeightCut cut_of_weight(const model::Parameter& weight, Role role) const {
    if (!weight.split.split()) return WeightCut::kNone;
    const bool input_first = table_.config.family == model::Family::kGpt2 && role != Role::kHeadWeight;
    return weight.split.dimension == (input_first ? 1 : 0) ? WeightCut::kOutput : WeightCut::kInput;
  }
  static PieceKind pieces_of(const model::Parameter& weight) { return weight.split.blocks.front().kind; }
  void need_uncut(const model::Parameter& weight) {
    if (weight.split.split()) refuse(weight.name, fmt::format("is cut, and {} needs all of it", reader()));
  }

  void gradient(Role role, AxisState computed) {
    const model::Parameter* p = parameter(role);
    if (p == nullptr) return;
    const bool tied_head = role == Role::kHeadWeight && p->unit != unit_;
    if (!given_.insert({p->name, tied_head}).second) return refuse(p->name, "its gradient is given twice");
    const AxisState declared = tensor_gradient_state(*p, layout_);
    if (computed == declared) return;
    const std::string_view outcome = computed == AxisState::kPartial   ? ": its sum over the ranks would be missed"
                                     : declared == AxisState::kPartial ? ": it would be summed once too often"
                                                                       : "";
    refuse(p->name, fmt::format("its gradient is {} as {} gives it, and the parameter table declares it {}{}",
                                state_name(computed), flow_op_name(step_->op), state_name(declared), outcome));
  }
  // Of a gradient that is a sum over the rows of values in this state.
  AxisState summed(const ValueState& state) const {
    if (state.state == FlowState::kSplit) return state.parts ? AxisState::kPartial : AxisState::kSharded;
    return state == kRows ? AxisState::kPartial : AxisState::kReplicated;
  }

  void take(const FlowStep& step) {
    if (is_exchange(step.op)) return exchange();
    if (step.op == FlowOp::kLinear || step.op == FlowOp::kLinearInputGradient ||
        step.op == FlowOp::kLinearWeightGradient) {
      return linear();
    }
    if (step.op >= FlowOp::kRowMaximum && step.op <= FlowOp::kCrossEntropyGradient) return loss();
    if (step.op >= FlowOp::kLinearInputGradient) return backward();
    forward();
  }
  void forward();
  void linear();
  void loss();
  void backward();
  void attention_gradient();
  void exchange();

  const model::ParameterTable& table_;
  const Layout& layout_;
  int unit_;
  std::map<std::string_view, model::SavedActivation> kept_;
  std::map<std::string_view, ValueState> values_;
  std::set<std::string_view> recomputed_;
  std::set<std::pair<std::string, bool>> given_;  // gradients: name, and whether of the head's use of a tied one
  Op pass_ = Op::kForward;
  const FlowStep* step_ = nullptr;
  std::optional<Failure> fault_;
};

void UnitCheck::forward() {
  const model::Parameter* first = step_->parameters.empty() ? nullptr : parameter(step_->parameters.front());
  if (fault_) return;
  switch (step_->op) {
    case FlowOp::kLookup:
      return write_all(first->split.split() ? kPartial : kWhole);
    case FlowOp::kNorm:
    case FlowOp::kAddPositions: {
      for (Role role : step_->parameters) {
        if (const model::Parameter* p = parameter(role); p != nullptr) need_uncut(*p);
      }
      const ValueState x = need_columns(0);
      for (std::size_t i = 1; i < step_->reads.size(); ++i) need_same(i, x);
      return write_all(x);
    }
    case FlowOp::kAddBias: {
      const ValueState x = first->split.split() ? need_split(0) : need_columns(0);
      if (first->split.split()) need_same(0, split(pieces_of(*first), x.parts));
      return write_all(x);
    }
    case FlowOp::kHeadNorm:
      need_uncut(*first);
      return write_all(need_split(0));
    case FlowOp::kElementwise: {
      const ValueState x = read(0);
      if (x.state != FlowState::kSplit) need_columns(0);
      for (std::size_t i = 1; i < step_->reads.size(); ++i) need_same(i, x);
      return write_all(x);
    }
    case FlowOp::kAttention:
      for (std::size_t i = 0; i < step_->reads.size(); ++i) {
        need_same(i, split(i == 0 ? PieceKind::kHeads : PieceKind::kKvHeads));
      }
      return write_all(split(PieceKind::kHeads));
    default:
      TRIREME_CHECK(false, "{} goes forward?", flow_op_name(step_->op));
  }
}

void UnitCheck::linear() {
  const Role role = step_->parameters.front();
  const model::Parameter* weight = parameter(role);
  if (weight == nullptr) return;
  const WeightCut cut = cut_of_weight(*weight, role);
  const bool input_gradient = step_->op == FlowOp::kLinearInputGradient;
  // The state of the projection's input and of its output, forward or backward; a gradient through shared key/value
  // heads may be parts.
  const auto need_cut = [&](std::size_t index) {
    const ValueState is = need_split(index);
    if (!fault_) need_same(index, split(pieces_of(*weight), is.parts));
    return is;
  };
  if (step_->op == FlowOp::kLinearWeightGradient) {
    if (cut == WeightCut::kOutput) {
      need_whole(0);
      return gradient(role, summed(need_cut(1)));
    }
    if (cut == WeightCut::kInput) {
      need_whole(1);
      return gradient(role, summed(need_cut(0)));
    }
    const ValueState x = need_columns(0);
    need_same(1, x);
    return gradient(role, summed(x));
  }
  if (cut == WeightCut::kNone) return write_all(need_columns(0));
  if ((cut == WeightCut::kInput) == input_gradient) {
    need_whole(0);
    return write_all(split(pieces_of(*weight)));
  }
  need_cut(0);
  write_all(kPartial);
}

// Of this rank's columns of a block of logits.
void UnitCheck::loss() {
  const ValueState logits = step_->op == FlowOp::kCrossEntropy ? kWhole : read(0);
  const bool cut = logits.state == FlowState::kSplit;
  if (!cut && logits != kWhole) misuse(step_->reads[0], logits, "cut by vocabulary rows, or whole");
  switch (step_->op) {
    case FlowOp::kRowMaximum:
      return write_all(cut ? ValueState{FlowState::kPartialMaximum} : kWhole);
    case FlowOp::kSoftmaxSum:
      need_whole(1);
      return write_all(cut ? kPartial : kWhole);
    case FlowOp::kCrossEntropy:
      need_whole(0);
      need_whole(1);
      return write_all(kWhole);
    default:  // kCrossEntropyGradient
      need_whole(1);
      need_whole(2);
      return write_all(logits);
  }
}

void UnitCheck::backward() {
  switch (step_->op) {
    case FlowOp::kBiasGradient: {
      const Role role = step_->parameters.front();
      const model::Parameter* bias = parameter(role);
      if (bias == nullptr) return;
      const ValueState d_y = bias->split.split() ? need_split(0) : need_columns(0);
      if (bias->split.split()) need_same(0, split(pieces_of(*bias), d_y.parts));
      return gradient(role, summed(d_y));
    }
    case FlowOp::kNormGradient: {
      const ValueState d_y = need_columns(0);
      for (std::size_t i = 1; i < step_->reads.size(); ++i) need_same(i, d_y);
      for (Role role : step_->parameters) gradient(role, summed(d_y));
      return write_all(d_y);
    }
    case FlowOp::kHeadNormGradient: {
      const ValueState d_y = need_split(0);
      need_same(1, split(d_y.pieces));
      gradient(step_->parameters.front(), AxisState::kPartial);  // of this rank's heads
      return write_all(d_y);
    }
    case FlowOp::kAttentionGradient:
      return attention_gradient();
    case FlowOp::kLookupGradient: {
      need_whole(0);
      const model::Parameter* embedding = parameter(step_->parameters.front());
      if (embedding == nullptr) return;
      return gradient(embedding->role, embedding->split.split() ? AxisState::kSharded : AxisState::kReplicated);
    }
    case FlowOp::kPositionsGradient:
      return gradient(step_->parameters.front(), summed(need_columns(0)));
    default:
      TRIREME_CHECK(false, "{} goes backward?", flow_op_name(step_->op));
  }
}

void UnitCheck::attention_gradient() {
  need_same(0, split(PieceKind::kHeads));
  for (std::size_t i = 0; i < step_->writes.size(); ++i) {
    const PieceKind pieces = i == 0 ? PieceKind::kHeads : PieceKind::kKvHeads;
    need_same(i + 1, split(pieces));
    const bool has_kv = i > 0 || step_->writes.size() == 1;
    write(step_->writes[i], split(pieces, has_kv && shares_kv_heads()));
  }
}

void UnitCheck::exchange() {
  const ValueState is = read(0);
  const auto make = [&](const ValueState& needed, std::string_view needed_name, const ValueState& made) {
    if (is != needed) return misuse(step_->reads[0], is, needed_name);
    write_all(made);
  };
  switch (step_->op) {
    case FlowOp::kAllReduce:
      return make(kPartial, "partial: it would be summed once too often", kWhole);
    case FlowOp::kAllReduceMaximum:
      return make({FlowState::kPartialMaximum}, "a partial maximum", kWhole);
    case FlowOp::kReduceScatter:
      return make(kPartial, "partial: it would be summed once too often", kRows);
    default:  // kAllGather
      return make(kRows, "of own rows", kWhole);
  }
}

}  // namespace

Status check_unit_flow(const model::ParameterTable& table, const Layout& layout, int unit, const UnitFlow& flow) {
  return UnitCheck(table, layout, unit).run(flow);
}

Status check_tensor_flow(const model::ParameterTable& table, const Layout& layout) {
  if (layout.tp == 1) return ok_status();
  std::map<model::UnitKind, UnitFlow> flows;
  for (int unit = 0; unit < model::unit_count(table.config); ++unit) {
    const model::UnitKind kind = model::unit_kind(table.config, unit);
    if (flows.count(kind) == 0) flows[kind] = unit_flow(table.config, layout, kind);
    if (Status status = check_unit_flow(table, layout, unit, flows[kind]); !status) return status;
  }
  return ok_status();
}

}  // namespace trireme::plan
