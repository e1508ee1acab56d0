#pragma once

// What a unit keeps between its passes, derived from its steps (flow_steps.h): every value that a later pass reads than
// the one that writes it. A pass gets these buffers by their place in the list; the planner adds up the same entries.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/flow_steps.h"

namespace trireme::model {

// What replays a unit's forward pass inside backward instead of keeping its result.
//   kNone: everything kept. kSelective: what is cheap to remake from what is kept (norm outputs, the MLP's activation
//   output) is dropped. Attention never keeps probabilities, so there is nothing to gain there. kFull: the unit's
//   input alone is kept.
enum class Recompute { kNone, kSelective, kFull };
Result<Recompute> parse_recompute(std::string_view text);
std::string_view recompute_name(Recompute recompute);

struct SavedActivation {
  FlowValue value;
  // The least recompute kind that drops it after forward; kNone where it is always kept.
  Recompute dropped_under = Recompute::kNone;
  bool for_weight_pass = false;  // backward-weight reads it, so it lives until then
  bool given = false;            // the unit's input, or its output's gradient: written by another unit
  bool gradient = false;
};
// In the order of the flow, in which they are allocated; gradients behind.
std::vector<SavedActivation> saved_activations(const UnitFlow& flow, const FlowSteps& steps);
std::vector<SavedActivation> saved_activations(const UnitFlow& flow);

// Groups are what a layer program allocates and frees at once.
enum class ActivationGroup {
  kInput,            // the unit's input; allocated by the unit before it; read by backward-input at the latest
  kInputForWeight,   // the same; read by backward-weight too
  kKept,             // kept from forward; read by backward-input only
  kKeptForWeight,    // kept from forward; read by backward-weight too
  kRemade,           // dropped after forward and made again; read by backward-input only
  kRemadeForWeight,  // the same; read by backward-weight too
  kOutputGradient,   // written by the unit after it
  kGradient,         // the other gradients left for backward-weight
};
inline constexpr int kActivationGroupCount = 8;
ActivationGroup group_of(const SavedActivation& entry, Recompute recompute);

// Sizes on one rank.
struct ActivationShape {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};
// How many of everything a rank holds: filled by plan/ from the layout.
struct LocalWidths {
  std::int64_t tokens = 0;           // micro_batch * sequence
  std::int64_t sequence_tokens = 0;  // tokens / tp under sequence parallelism, else tokens
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  int tp = 1;
};
// Of a value that is not cut by vocabulary rows (CHECK), which ranks have different numbers of.
ActivationShape local_shape(const FlowValue& value, const LocalWidths& widths);

// The pass that makes again what recompute dropped: forward's steps, without those whose results nobody reads; norms
// whose statistics are kept from these.
std::vector<FlowStep> recompute_steps(const UnitFlow& flow, const FlowSteps& steps, Recompute recompute);

}  // namespace trireme::model
