#pragma once

// The activation table: every tensor that a unit keeps from its forward pass for its backward pass, or from its
// backward-input pass for its backward-weight pass. Layers obtain these buffers by name; the planner adds up the very
// same entries.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/units.h"
#include "model/parameters.h"

namespace trireme::model {

// What replays a unit's forward pass inside backward instead of keeping its result.
//   kNone: everything kept. kSelective: what is cheap to remake from what is kept (norm outputs, the MLP's activation
//   output) is dropped. Attention never keeps probabilities, so there is nothing to gain there. kFull: the unit's
//   input alone is kept.
enum class Recompute { kNone, kSelective, kFull };
Result<Recompute> parse_recompute(std::string_view text);
std::string_view recompute_name(Recompute recompute);

// Names of the buffers. Shapes in T = micro_batch * sequence tokens; a, g: query and kv heads of the rank; d: head_dim;
// h: hidden; f: the rank's part of ffn. Row-major, one row a token, contiguous.
enum class Saved {
  kInput,            // [T, h] the unit's input: written by the unit before it (decoder and head)
  kNorm1Output,      // [T, h]
  kNorm1Stats,       // [T, 2] fp32: mean and reciprocal deviation (RMS: unused, reciprocal root mean square)
  kQueryBeforeNorm,  // [T, a d] after bias (query and key norms only; their statistics are made again from it)
  kKeyBeforeNorm,    // [T, g d]
  kQuery,            // [T, a d] after bias, norm and rotary
  kKey,              // [T, g d] after bias, norm and rotary
  kValue,            // [T, g d]
  kQkv,              // [T, (a + 2g) d]: gpt2's fused projection, instead of the three above
  kAttentionOutput,  // [T, a d]: the core's output, input of the output projection
  kLogSumExp,        // [a, T] fp32 (per sequence: head-major inside the micro-batch)
  kMiddle,           // [T, h]: the residual stream after attention
  kNorm2Output,      // [T, h]
  kNorm2Stats,       // [T, 2] fp32
  kGate,             // [T, f] before the activation (gated MLP only)
  kUp,               // [T, f]; plain MLP: before the activation
  kActivated,        // [T, f]: input of the down projection
  kFinalNormOutput,  // [T, h] (head)
  kFinalNormStats,   // [T, 2] (head)
  // Gradients that backward-input leaves for backward-weight.
  kOutputGradient,  // [T, h]: of the unit's output; written by the unit after it (embedding and decoder)
  kDownGradient,    // [T, h]: of the down projection's output, only where residual dropout makes it differ
  kGateGradient,    // [T, f] (gated)
  kUpGradient,      // [T, f]
  kMiddleGradient,  // [T, h]
  // [T, h]: only where residual dropout makes it differ from kMiddleGradient
  kAttentionOutputProjectionGradient,
  kQueryGradient,  // [T, a d]
  kKeyGradient,    // [T, g d]
  kValueGradient,  // [T, g d]
  kQkvGradient,    // [T, (a + 2g) d]
};
inline constexpr int kSavedCount = static_cast<int>(Saved::kQkvGradient) + 1;
std::string_view saved_name(Saved saved);

// How an entry is cut over the tensor axis.
//   kWhole: every rank holds all of it. kTensor: by heads or features. kSequence: by tokens where sequence parallelism
//   is on, whole otherwise.
enum class ActivationSplit { kWhole, kTensor, kSequence };

// Which columns an entry has, before the cut.
enum class ActivationWidth { kHidden, kQuery, kKv, kQkv, kFfn, kTwo, kQueryHeads };

struct SavedActivation {
  Saved name = Saved::kInput;
  ActivationWidth width = ActivationWidth::kHidden;
  ActivationSplit split = ActivationSplit::kWhole;
  DType dtype = DType::kF32;  // statistics stay fp32 whatever the compute type; float64 runs hold all in F64
  bool statistics = false;
  // The least recompute kind that drops it after forward; kNone where kept_always is true.
  Recompute dropped_under = Recompute::kFull;
  bool kept_always = false;
  bool for_weight_pass = false;  // backward-weight reads it, so it lives until then
  bool gradient = false;         // made by backward-input
};

// The entries of one unit kind. Order is the order of allocation.
std::vector<SavedActivation> activation_table(const Config& config, UnitKind unit);

// Groups are what a layer program allocates and frees at once.
enum class ActivationGroup {
  kInput,            // the unit's input; allocated by the unit before it
  kKept,             // kept from forward; read by backward-input only
  kKeptForWeight,    // kept from forward; read by backward-weight too
  kRemade,           // dropped after forward and made again; read by backward-input only
  kRemadeForWeight,  // the same; read by backward-weight too
  kOutputGradient,   // written by the unit after it
  kGradient,         // the other gradients left for backward-weight
};
inline constexpr int kActivationGroupCount = 7;
ActivationGroup group_of(const SavedActivation& entry, Recompute recompute);

// Sizes on one rank.
struct ActivationShape {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};
// How many of everything a rank holds: filled by plan/ from the layout; {heads, kv_heads, ffn} of the model at tp = 1.
struct LocalWidths {
  std::int64_t tokens = 0;           // micro_batch * sequence
  std::int64_t sequence_tokens = 0;  // tokens / tp under sequence parallelism, else tokens
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t ffn = 0;
};
ActivationShape activation_shape(const Config& config, const SavedActivation& entry, const LocalWidths& widths);

}  // namespace trireme::model
