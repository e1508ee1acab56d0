#include "model/activations.h"

#include <algorithm>
#include <array>
#include <set>
#include <string>

#include "base/check.h"

namespace trireme::model {
namespace {

constexpr std::array kRecomputeNames = std::to_array<std::string_view>({"none", "selective", "full"});

using Names = std::set<std::string, std::less<>>;

Names read_in(const FlowSteps& steps, FlowPass pass) {
  Names names;
  for (const FlowStep& step : steps.steps) {
    if (step.pass == pass) names.insert(step.reads.begin(), step.reads.end());
  }
  return names;
}
Names written_in(const FlowSteps& steps, FlowPass pass) {
  Names names;
  for (const FlowStep& step : steps.steps) {
    if (step.pass == pass) names.insert(step.writes.begin(), step.writes.end());
  }
  return names;
}

// What can be made again by one cheap step from what is kept.
Names cheap(const FlowSteps& steps) {
  Names names;
  for (const FlowStep& step : steps.steps) {
    const bool is_cheap = step.op == FlowOp::kNorm || step.op == FlowOp::kActivation;
    if (step.pass == FlowPass::kForward && is_cheap) names.insert(step.writes.front());
  }
  return names;
}

}  // namespace

Result<Recompute> parse_recompute(std::string_view text) {
  for (std::size_t i = 0; i < kRecomputeNames.size(); ++i) {
    if (kRecomputeNames[i] == text) return static_cast<Recompute>(i);
  }
  return Failure{"layout.recompute", std::string(text), "there is no such kind of recompute", "none, selective, full"};
}

std::string_view recompute_name(Recompute recompute) { return kRecomputeNames[static_cast<std::size_t>(recompute)]; }

std::vector<SavedActivation> saved_activations(const UnitFlow& flow) {
  return saved_activations(flow, flow_steps(flow));
}

std::vector<SavedActivation> saved_activations(const UnitFlow& flow, const FlowSteps& steps) {
  const Names forward = written_in(steps, FlowPass::kForward), backward = written_in(steps, FlowPass::kBackwardInput);
  const Names input_pass = read_in(steps, FlowPass::kBackwardInput),
              weight_pass = read_in(steps, FlowPass::kBackwardWeight);
  const Names remade = cheap(steps);
  const std::string input = flow.input < 0 ? "" : flow.values[static_cast<std::size_t>(flow.input)].name;
  const std::string d_output =
      flow.output < 0 ? "" : gradient_name(flow.values[static_cast<std::size_t>(flow.output)].name);
  std::vector<SavedActivation> kept, gradients;
  for (const FlowValue& value : steps.values) {
    const bool reads = weight_pass.contains(value.name);
    if (value.name == input) {
      kept.push_back({.value = value, .for_weight_pass = reads, .given = true});
    } else if (value.name == d_output) {
      gradients.insert(gradients.begin(), {.value = value, .for_weight_pass = true, .given = true, .gradient = true});
    } else if (forward.contains(value.name) && (reads || input_pass.contains(value.name))) {
      kept.push_back({.value = value,
                      .dropped_under = remade.contains(value.name) ? Recompute::kSelective : Recompute::kFull,
                      .for_weight_pass = reads});
    } else if (backward.contains(value.name) && reads) {
      gradients.push_back({.value = value, .for_weight_pass = true, .gradient = true});
    }
  }
  kept.insert(kept.end(), gradients.begin(), gradients.end());
  return kept;
}

ActivationGroup group_of(const SavedActivation& saved, Recompute recompute) {
  if (saved.given && saved.gradient) return ActivationGroup::kOutputGradient;
  if (saved.given) return saved.for_weight_pass ? ActivationGroup::kInputForWeight : ActivationGroup::kInput;
  if (saved.gradient) return ActivationGroup::kGradient;
  const bool dropped = saved.dropped_under != Recompute::kNone && recompute >= saved.dropped_under;
  if (dropped) return saved.for_weight_pass ? ActivationGroup::kRemadeForWeight : ActivationGroup::kRemade;
  return saved.for_weight_pass ? ActivationGroup::kKeptForWeight : ActivationGroup::kKept;
}

ActivationShape local_shape(const FlowValue& value, const LocalWidths& widths) {
  std::int64_t columns = value.blocks.empty() ? value.columns : 0;
  for (const SplitBlock& block : value.blocks) {
    TRIREME_CHECK(block.kind != PieceKind::kVocabulary, "{} depends on the rank", value.name);
    // Fewer key/value heads than ranks: neighbours share one.
    columns += std::max<std::int64_t>(1, block.count / widths.tp) * block.piece;
  }
  const std::int64_t rows = value.in_stream() ? widths.sequence_tokens : widths.tokens;
  if (value.heads_first) return {.rows = columns, .columns = rows};
  return {.rows = rows, .columns = columns};
}

std::vector<FlowStep> recompute_steps(const UnitFlow& flow, const FlowSteps& steps, Recompute recompute) {
  Names wanted, kept;
  for (const SavedActivation& saved : saved_activations(flow, steps)) {
    const ActivationGroup group = group_of(saved, recompute);
    const bool remade = group == ActivationGroup::kRemade || group == ActivationGroup::kRemadeForWeight;
    (remade ? wanted : kept).insert(saved.value.name);
  }
  std::vector<FlowStep> again;
  for (auto step = steps.steps.rbegin(); step != steps.steps.rend(); ++step) {
    const auto is_wanted = [&](const std::string& name) { return wanted.contains(name); };
    if (step->pass != FlowPass::kForward || std::ranges::none_of(step->writes, is_wanted)) continue;
    FlowStep made = *step;
    made.pass = FlowPass::kRecompute;
    if (made.op == FlowOp::kNorm && kept.contains(made.writes.back())) {
      made.op = FlowOp::kNormAgain;
      made.reads.push_back(made.writes.back());
      made.writes.pop_back();
    }
    for (const std::string& name : made.reads) {
      if (!kept.contains(name)) wanted.insert(name);
    }
    again.push_back(std::move(made));
  }
  std::ranges::reverse(again);
  return again;
}

}  // namespace trireme::model
