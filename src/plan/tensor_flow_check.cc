#include <array>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "model/activations.h"
#include "plan/slices.h"
#include "plan/tensor_flow.h"

namespace trireme::plan {
namespace {

using model::AxisState;
using model::FlowOp;
using model::FlowPass;
using model::FlowStep;
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
std::string_view pass_name(FlowPass pass) {
  constexpr std::array kNames =
      std::to_array<std::string_view>({"forward", "loss", "recompute", "backward input", "backward weight"});
  return kNames[static_cast<std::size_t>(pass)];
}

// How a projection cuts its output and its input.
enum class WeightCut { kNone, kOutput, kInput };

class UnitCheck {
 public:
  UnitCheck(const model::ParameterTable& table, const Layout& layout, int unit)
      : table_(table), layout_(layout), unit_(unit) {
    const model::UnitFlow flow = model::unit_flow(table.config, unit);
    for (const model::SavedActivation& saved : model::saved_activations(flow, model::flow_steps(flow))) {
      kept_.emplace(saved.value.name, saved);
      if (saved.given) values_[saved.value.name] = residual();
    }
    if (flow.output >= 0) output_ = flow.values[static_cast<std::size_t>(flow.output)].name;
    if (flow.input >= 0) d_input_ = model::gradient_name(flow.values[static_cast<std::size_t>(flow.input)].name);
  }

  Status run(const model::FlowSteps& steps) {
    for (const FlowStep& step : steps.steps) {
      if (step.pass != pass_) next_pass(step.pass);
      step_ = &step;
      take(step);
      if (fault_) return *fault_;
    }
    end_pass();
    if (fault_) return *fault_;
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

  // What an earlier pass made and is kept until this one.
  bool lives(std::string_view name) const {
    const auto found = kept_.find(name);
    if (found == kept_.end()) return false;
    using model::ActivationGroup;
    const ActivationGroup group = model::group_of(found->second, layout_.recompute);
    if (pass_ == FlowPass::kRecompute || (pass_ == FlowPass::kBackwardInput && !recomputed_.contains(name))) {
      return group != ActivationGroup::kRemade && group != ActivationGroup::kRemadeForWeight;
    }
    if (pass_ != FlowPass::kBackwardWeight) return true;
    return group == ActivationGroup::kInputForWeight || group == ActivationGroup::kKeptForWeight ||
           group == ActivationGroup::kRemadeForWeight || group == ActivationGroup::kOutputGradient ||
           group == ActivationGroup::kGradient;
  }
  // What the units at its ends are given; and what is kept lies as its flow says, once all its sums are made.
  void end_pass() {
    for (const std::string& name : std::exchange(made_, {})) {
      const model::FlowValue& value = kept_.find(name)->second.value;
      const ValueState& state = values_.at(name);
      const bool as_declared = value.in_stream() ? state == residual()
                               : value.all_rows  ? state == kWhole
                                                 : state.state == FlowState::kSplit;
      if (!as_declared) refuse(name, fmt::format("is {}, unlike what its flow keeps", describe(state)));
    }
    if (pass_ == FlowPass::kForward) gives(output_);
    if (pass_ == FlowPass::kBackwardInput) gives(d_input_);
  }
  void gives(const std::string& name) {
    if (name.empty()) return;
    const auto found = values_.find(name);
    if (found == values_.end()) return refuse(name, "is given by no step of this pass");
    if (found->second == residual()) return;
    refuse(name, fmt::format("is {}, and the unit at its other end needs it {}", describe(found->second),
                             describe(residual())));
  }
  void next_pass(FlowPass pass) {
    end_pass();
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

  void write(const std::string& name, const ValueState& state) {
    if (step_->accumulate && read(name) != state) return misuse(name, read(name), describe(state));
    values_[name] = state;
    const auto kept = kept_.find(name);
    if (kept == kept_.end()) return;
    if (pass_ == FlowPass::kRecompute) recomputed_.insert(std::string(name));
    made_.insert(name);
  }
  void write_all(const ValueState& state) {
    for (const std::string& name : step_->writes) write(name, state);
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
  static WeightCut cut_of_weight(const model::Parameter& weight) {
    if (!weight.split.split()) return WeightCut::kNone;
    return weight.split.dimension == (weight.input_first ? 1 : 0) ? WeightCut::kOutput : WeightCut::kInput;
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
  // Of each element alone: all operands and results lie alike.
  void alike() {
    const ValueState x = read(0);
    if (x.state != FlowState::kSplit) need_columns(0);
    for (std::size_t i = 1; i < step_->reads.size(); ++i) need_same(i, x);
    write_all(x);
  }
  // The same, each result as its own operand.
  void each_of_itself() {
    for (std::size_t i = 0; i < step_->reads.size(); ++i) {
      const ValueState x = need_split(i);
      if (!fault_) write(step_->writes[i], x);
    }
  }

  const model::ParameterTable& table_;
  const Layout& layout_;
  int unit_;
  std::map<std::string, model::SavedActivation, std::less<>> kept_;
  std::map<std::string, ValueState, std::less<>> values_;
  std::set<std::string, std::less<>> recomputed_;
  std::set<std::string> made_;                    // of what is kept, in this pass
  std::string output_, d_input_;                  // what the pass gives to the units at its ends
  std::set<std::pair<std::string, bool>> given_;  // gradients: name, and whether of the head's use of a tied one
  FlowPass pass_ = FlowPass::kForward;
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
    case FlowOp::kNormAgain:
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
    case FlowOp::kSquareSums:
      need_split(0);
      return write_all(kPartial);
    case FlowOp::kNormOfSums: {
      const ValueState x = need_split(0);
      if (!fault_) need_same(0, split(pieces_of(*first)));
      need_whole(1);
      write(step_->writes[0], x);
      return write(step_->writes[1], kWhole);
    }
    case FlowOp::kRotary:
      return each_of_itself();
    case FlowOp::kAdd:
      if (first != nullptr) need_uncut(*first);
      return alike();
    case FlowOp::kActivation:
    case FlowOp::kDropout:
    case FlowOp::kScale:
      return alike();
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
  const WeightCut cut = cut_of_weight(*weight);
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
    case FlowOp::kNormDots:
    case FlowOp::kNormGradientOfDots: {
      const ValueState d_y = need_split(0);
      need_same(1, split(d_y.pieces));
      need_whole(2);
      if (step_->op == FlowOp::kNormDots) return write_all(kPartial);
      need_whole(3);
      gradient(step_->parameters.front(), summed(d_y));
      return write_all(d_y);
    }
    case FlowOp::kAttentionGradient:
      return attention_gradient();
    case FlowOp::kRotaryGradient:
      return each_of_itself();
    case FlowOp::kActivationGradient:
    case FlowOp::kDropoutGradient:
    case FlowOp::kScaleGradient:
    case FlowOp::kSumGradients:
      return alike();
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
  // What forward gave.
  for (std::size_t i = step_->writes.size() + 1; i < step_->reads.size(); ++i) need_same(i, split(PieceKind::kHeads));
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

Status check_unit_flow(const model::ParameterTable& table, const Layout& layout, int unit,
                       const model::FlowSteps& steps) {
  return UnitCheck(table, layout, unit).run(steps);
}

Status check_tensor_flow(const model::ParameterTable& table, const Layout& layout) {
  if (layout.tp == 1) return ok_status();
  std::vector<model::FlowSteps> bound;
  for (const model::UnitFlow& flow : model::flows_by_class(table.config)) bound.push_back(bind_flow(flow, layout));
  for (int unit = 0; unit < model::unit_count(table.config); ++unit) {
    const auto flow = static_cast<std::size_t>(model::flow_class(table.config, unit));
    if (Status status = check_unit_flow(table, layout, unit, bound[flow]); !status) return status;
  }
  return ok_status();
}

}  // namespace trireme::plan
