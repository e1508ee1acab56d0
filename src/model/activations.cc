#include "model/activations.h"

#include <array>

#include "base/check.h"

namespace trireme::model {
namespace {

constexpr std::array kRecomputeNames = std::to_array<std::string_view>({"none", "selective", "full"});

constexpr std::array kSavedNames = std::to_array<std::string_view>({
    "input",
    "norm 1 output",
    "norm 1 statistics",
    "query before norm",
    "key before norm",
    "query",
    "key",
    "value",
    "query, key, value",
    "attention output",
    "log-sum-exp",
    "middle",
    "norm 2 output",
    "norm 2 statistics",
    "gate",
    "up",
    "activated",
    "final norm output",
    "final norm statistics",
    "output gradient",
    "down gradient",
    "gate gradient",
    "up gradient",
    "middle gradient",
    "attention output projection gradient",
    "query gradient",
    "key gradient",
    "value gradient",
    "query, key, value gradient",
});
static_assert(kSavedNames.size() == kSavedCount);

using Width = ActivationWidth;
using Split = ActivationSplit;

enum class WeightPass { kUnread, kReads };

// The unit's input: what everything else can be made from.
SavedActivation input() {
  return {.name = Saved::kInput,
          .width = Width::kHidden,
          .split = Split::kSequence,
          .dropped_under = Recompute::kNone,
          .kept_always = true};
}

SavedActivation forward(Saved name, Width width, Split split, Recompute dropped_under,
                        WeightPass weight_pass = WeightPass::kUnread) {
  return {.name = name,
          .width = width,
          .split = split,
          .dropped_under = dropped_under,
          .for_weight_pass = weight_pass == WeightPass::kReads};
}

SavedActivation statistics(Saved name, Width width, Split split) {
  return {.name = name, .width = width, .split = split, .statistics = true, .dropped_under = Recompute::kFull};
}

SavedActivation gradient(Saved name, Width width, Split split) {
  return {.name = name,
          .width = width,
          .split = split,
          .dropped_under = Recompute::kNone,
          .kept_always = true,
          .for_weight_pass = true,
          .gradient = true};
}

// Weight gradients of linears read their inputs (norm outputs, attention's output, the activated MLP). Norms' weight
// gradients are taken in backward-input, so that neither their inputs nor their statistics live longer.
void add_decoder_forward(const Config& config, std::vector<SavedActivation>& table) {
  table.push_back(input());
  table.push_back(
      forward(Saved::kNorm1Output, Width::kHidden, Split::kSequence, Recompute::kSelective, WeightPass::kReads));
  table.push_back(statistics(Saved::kNorm1Stats, Width::kTwo, Split::kSequence));
  if (config.family == Family::kGpt2) {
    table.push_back(forward(Saved::kQkv, Width::kQkv, Split::kTensor, Recompute::kFull));
  } else {
    if (config.qk_norm) {
      table.push_back(forward(Saved::kQueryBeforeNorm, Width::kQuery, Split::kTensor, Recompute::kFull));
      table.push_back(forward(Saved::kKeyBeforeNorm, Width::kKv, Split::kTensor, Recompute::kFull));
    }
    table.push_back(forward(Saved::kQuery, Width::kQuery, Split::kTensor, Recompute::kFull));
    table.push_back(forward(Saved::kKey, Width::kKv, Split::kTensor, Recompute::kFull));
    table.push_back(forward(Saved::kValue, Width::kKv, Split::kTensor, Recompute::kFull));
  }
  table.push_back(
      forward(Saved::kAttentionOutput, Width::kQuery, Split::kTensor, Recompute::kFull, WeightPass::kReads));
  table.push_back(statistics(Saved::kLogSumExp, Width::kQueryHeads, Split::kTensor));
  table.push_back(forward(Saved::kMiddle, Width::kHidden, Split::kSequence, Recompute::kFull));
  table.push_back(
      forward(Saved::kNorm2Output, Width::kHidden, Split::kSequence, Recompute::kSelective, WeightPass::kReads));
  table.push_back(statistics(Saved::kNorm2Stats, Width::kTwo, Split::kSequence));
  if (config.gated_mlp) table.push_back(forward(Saved::kGate, Width::kFfn, Split::kTensor, Recompute::kFull));
  table.push_back(forward(Saved::kUp, Width::kFfn, Split::kTensor, Recompute::kFull));
  table.push_back(forward(Saved::kActivated, Width::kFfn, Split::kTensor, Recompute::kSelective, WeightPass::kReads));
}

void add_decoder_gradients(const Config& config, std::vector<SavedActivation>& table) {
  // Behind a dropout the projection's output gradient is another tensor than the residual's.
  const bool dropout = config.residual_dropout > 0.0;
  table.push_back(gradient(Saved::kOutputGradient, Width::kHidden, Split::kSequence));
  if (dropout) table.push_back(gradient(Saved::kDownGradient, Width::kHidden, Split::kSequence));
  if (config.gated_mlp) table.push_back(gradient(Saved::kGateGradient, Width::kFfn, Split::kTensor));
  table.push_back(gradient(Saved::kUpGradient, Width::kFfn, Split::kTensor));
  table.push_back(gradient(Saved::kMiddleGradient, Width::kHidden, Split::kSequence));
  if (dropout) {
    table.push_back(gradient(Saved::kAttentionOutputProjectionGradient, Width::kHidden, Split::kSequence));
  }
  if (config.family == Family::kGpt2) {
    table.push_back(gradient(Saved::kQkvGradient, Width::kQkv, Split::kTensor));
  } else {
    table.push_back(gradient(Saved::kQueryGradient, Width::kQuery, Split::kTensor));
    table.push_back(gradient(Saved::kKeyGradient, Width::kKv, Split::kTensor));
    table.push_back(gradient(Saved::kValueGradient, Width::kKv, Split::kTensor));
  }
}

std::int64_t columns_of(const Config& config, ActivationWidth width, const LocalWidths& widths) {
  switch (width) {
    case Width::kHidden:
      return config.hidden;
    case Width::kQuery:
      return widths.heads * config.head_dim;
    case Width::kKv:
      return widths.kv_heads * config.head_dim;
    case Width::kQkv:
      return (widths.heads + 2 * widths.kv_heads) * config.head_dim;
    case Width::kFfn:
      return widths.ffn;
    case Width::kTwo:
      return 2;
    case Width::kQueryHeads:
      return widths.heads;
  }
  TRIREME_CHECK(false, "activation width {}", static_cast<int>(width));
}

}  // namespace

Result<Recompute> parse_recompute(std::string_view text) {
  for (std::size_t i = 0; i < kRecomputeNames.size(); ++i) {
    if (kRecomputeNames[i] == text) return static_cast<Recompute>(i);
  }
  return Failure{"layout.recompute", std::string(text), "there is no such kind of recompute", "none, selective, full"};
}

std::string_view recompute_name(Recompute recompute) { return kRecomputeNames[static_cast<std::size_t>(recompute)]; }

std::string_view saved_name(Saved saved) { return kSavedNames[static_cast<std::size_t>(saved)]; }

std::vector<SavedActivation> activation_table(const Config& config, UnitKind unit) {
  std::vector<SavedActivation> table;
  switch (unit) {
    case UnitKind::kEmbedding:
      table.push_back(gradient(Saved::kOutputGradient, Width::kHidden, Split::kSequence));
      break;
    case UnitKind::kDecoder:
      add_decoder_forward(config, table);
      add_decoder_gradients(config, table);
      break;
    case UnitKind::kHead:
      // The head's weight gradient is made in backward-input, while a block's logits exist: nothing waits.
      table.push_back(input());
      table.push_back(forward(Saved::kFinalNormOutput, Width::kHidden, Split::kSequence, Recompute::kSelective));
      table.push_back(statistics(Saved::kFinalNormStats, Width::kTwo, Split::kSequence));
      break;
  }
  return table;
}

ActivationGroup group_of(const SavedActivation& entry, Recompute recompute) {
  if (entry.name == Saved::kInput) return ActivationGroup::kInput;
  if (entry.name == Saved::kOutputGradient) return ActivationGroup::kOutputGradient;
  if (entry.gradient) return ActivationGroup::kGradient;
  const bool dropped = !entry.kept_always && recompute >= entry.dropped_under;
  if (dropped) return entry.for_weight_pass ? ActivationGroup::kRemadeForWeight : ActivationGroup::kRemade;
  return entry.for_weight_pass ? ActivationGroup::kKeptForWeight : ActivationGroup::kKept;
}

ActivationShape activation_shape(const Config& config, const SavedActivation& entry, const LocalWidths& widths) {
  const std::int64_t rows = entry.split == Split::kSequence ? widths.sequence_tokens : widths.tokens;
  const std::int64_t columns = columns_of(config, entry.width, widths);
  // Per head, not per token.
  if (entry.width == Width::kQueryHeads) return {.rows = columns, .columns = rows};
  return {.rows = rows, .columns = columns};
}

}  // namespace trireme::model
