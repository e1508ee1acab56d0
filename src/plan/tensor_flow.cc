#include "plan/tensor_flow.h"

#include <algorithm>
#include <map>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "model/activations.h"

namespace trireme::plan {
namespace {

using model::FlowOp;
using model::FlowPass;
using model::FlowStep;
using model::FlowValue;

// Of columns that ranks share out.
bool gives_row_sums(FlowOp op) {
  return op == FlowOp::kRowMaximum || op == FlowOp::kSoftmaxSum || op == FlowOp::kSquareSums || op == FlowOp::kNormDots;
}

class Binding {
 public:
  Binding(const std::vector<FlowValue>& values, const Layout& layout) : layout_(layout) { bound_.values = values; }

  void pass(FlowPass pass, const std::vector<FlowStep>& steps) {
    gathered_.clear();
    unsummed_.clear();
    for (const FlowStep& step : steps) {
      if (step.pass == pass) add(step);
    }
    while (!unsummed_.empty()) sum_if_due(std::string(unsummed_.front().value));
  }
  model::FlowSteps take() { return std::move(bound_); }

 private:
  struct Unsummed {
    std::string value;
    FlowStep sum;
  };

  const FlowValue& find(const std::string& name) const {
    const auto at = std::ranges::find(bound_.values, name, &FlowValue::name);
    TRIREME_CHECK(at != bound_.values.end(), "no value {}", name);
    return *at;
  }

  void add(FlowStep step) {
    for (const std::string& name : step.reads) sum_if_due(name);
    const bool product = model::is_product(step.op);
    if (product && layout_.sequence_parallel) {
      for (std::string& name : step.reads) {
        if (find(name).in_stream()) name = all_rows(step, name);
      }
    }
    const bool sums_columns = product && !step.writes.empty() && find(step.writes.front()).in_stream();
    if (sums_columns || gives_row_sums(step.op)) remember_sum(step);
    bound_.steps.push_back(std::move(step));
  }

  // `own` as a value of all rows.
  std::string with_all_rows(const std::string& own, std::string_view what) {
    FlowValue value = find(own);
    value.name = fmt::format("{}, {}", own, what);
    value.all_rows = true;
    std::string name = value.name;
    if (std::ranges::find(bound_.values, name, &FlowValue::name) == bound_.values.end()) {
      bound_.values.push_back(std::move(value));
    }
    return name;
  }
  std::string all_rows(const FlowStep& reader, const std::string& own) {
    if (const auto found = gathered_.find(own); found != gathered_.end()) return found->second;
    std::string all = with_all_rows(own, "all rows");
    bound_.steps.push_back({.pass = reader.pass,
                            .op = FlowOp::kAllGather,
                            .reads = {own},
                            .writes = {all},
                            .operation = reader.operation});
    return gathered_[own] = all;
  }

  // What the step writes is a sum over the ranks that is still to be made.
  void remember_sum(FlowStep& step) {
    const std::string value = step.writes.front();
    const bool scatters = find(value).in_stream() && layout_.sequence_parallel;
    if (scatters) step.writes = {with_all_rows(value, "parts")};
    if (std::ranges::find(unsummed_, value, &Unsummed::value) != unsummed_.end()) return;
    const FlowOp op = scatters                         ? FlowOp::kReduceScatter
                      : step.op == FlowOp::kRowMaximum ? FlowOp::kAllReduceMaximum
                                                       : FlowOp::kAllReduce;
    unsummed_.push_back({.value = value,
                         .sum = {.pass = step.pass,
                                 .op = op,
                                 .reads = step.writes,
                                 .writes = {value},
                                 .by_block = step.by_block && !find(value).in_stream(),
                                 .operation = step.operation}});
  }
  void sum_if_due(const std::string& value) {
    const auto due = std::ranges::find(unsummed_, value, &Unsummed::value);
    if (due == unsummed_.end()) return;
    bound_.steps.push_back(std::move(due->sum));
    unsummed_.erase(due);
  }

  const Layout& layout_;
  model::FlowSteps bound_;
  std::map<std::string, std::string> gathered_;  // of this pass: own rows, all rows
  std::vector<Unsummed> unsummed_;               // in the order of their first parts
};

}  // namespace

model::FlowSteps bind_flow(const model::UnitFlow& flow, const Layout& layout) {
  const model::FlowSteps steps = model::flow_steps(flow);
  Binding binding(steps.values, layout);
  binding.pass(FlowPass::kForward, steps.steps);
  binding.pass(FlowPass::kLoss, steps.steps);
  binding.pass(FlowPass::kRecompute, model::recompute_steps(flow, steps, layout.recompute));
  binding.pass(FlowPass::kBackwardInput, steps.steps);
  binding.pass(FlowPass::kBackwardWeight, steps.steps);
  return binding.take();
}

std::optional<FlowPass> pass_of(Op op) {
  switch (op) {
    case Op::kForward:
      return FlowPass::kForward;
    case Op::kEvaluateLoss:
      return FlowPass::kLoss;
    case Op::kRecompute:
      return FlowPass::kRecompute;
    case Op::kBackwardInput:
      return FlowPass::kBackwardInput;
    case Op::kBackwardWeight:
      return FlowPass::kBackwardWeight;
    default:
      return std::nullopt;
  }
}

}  // namespace trireme::plan
