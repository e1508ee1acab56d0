#pragma once

// The parameter table: every parameter tensor of a model, as plain values. The planner adds it up, the engine executes
// it, the checkpoint re-slices it; no other place knows a parameter's name, shape or cut.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "model/config.h"

namespace trireme::model {

// A model is a row of units: embedding, decoder layers, head (final norm and output projection). Units are what
// pipeline stages are made of, what ZeRO gathers and frees, what recompute replays.
enum class UnitKind { kEmbedding, kDecoder, kHead };

// unit index: 0 = embedding, 1..layers = decoder layers, layers + 1 = head.
UnitKind unit_kind(const Config& config, int unit);
int unit_count(const Config& config);
std::string unit_name(const Config& config, int unit);  // "embedding", "layer 7", "head"

// The part that a tensor plays in its unit. Layers ask for their tensors by role, never by name.
enum class Role {
  kTokenEmbedding,     // [vocabulary, hidden]
  kPositionEmbedding,  // [max_positions, hidden]
  kNorm1Weight,        // [hidden]; before attention, or behind it
  kNorm1Bias,
  kQkvWeight,  // gpt2: [hidden, query + 2 kv widths], Conv1D (input first); phi3: Linear (output first)
  kQkvBias,
  kQueryWeight,  // llama: [query width, hidden], Linear (output first)
  kQueryBias,
  kKeyWeight,
  kKeyBias,
  kValueWeight,
  kValueBias,
  kQueryNormWeight,  // qwen3: [head_dim], one for all heads; olmo2: [query width]
  kKeyNormWeight,
  kAttentionOutputWeight,
  kAttentionOutputBias,
  kNorm2Weight,  // before the MLP, or behind it
  kNorm2Bias,
  kGateUpWeight,  // [2 ffn, hidden]: gate, then up (phi3)
  kGateUpBias,
  kGateWeight,
  kGateBias,
  kUpWeight,  // gpt2: c_fc
  kUpBias,
  kDownWeight,  // gpt2: mlp.c_proj
  kDownBias,
  kFinalNormWeight,
  kFinalNormBias,
  kHeadWeight,  // [vocabulary, hidden]; absent from the table where tied (see Parameter::also_used_by_head)
};
inline constexpr int kRoleCount = static_cast<int>(Role::kHeadWeight) + 1;
std::string_view role_name(Role role);

// How tensor parallelism cuts one dimension. The dimension is a row of blocks (query, key and value in gpt2's fused
// weight; one block elsewhere); each block is `count` pieces of `piece` elements; whole pieces go to ranks.
//   kHeads, kKvHeads: pieces are heads. tp must divide the count, or (kv heads only) the count must divide tp: then a
//     head is held by tp / count neighbouring ranks.
//   kFeatures:   pieces are single columns of the MLP; tp must divide the count.
//   kVocabulary: pieces are single rows; any tp up to the count: rank r holds rows [r V / tp, (r + 1) V / tp).
//     No row is padded in memory, so none can leak into the loss and none is ever stored.
enum class PieceKind { kHeads, kKvHeads, kFeatures, kVocabulary };
struct SplitBlock {
  PieceKind kind = PieceKind::kFeatures;
  std::int64_t count = 0;
  std::int64_t piece = 1;
};
struct TensorSplit {
  int dimension = -1;              // -1: replicated over tensor-parallel ranks
  std::vector<SplitBlock> blocks;  // their extents sum to the dimension
  bool split() const { return dimension >= 0; }
};

// What one rank's copy is, seen along an axis.
enum class AxisState { kReplicated, kSharded, kPartial };

// How the gradient that a rank computes relates to the tensor's true gradient along the tensor axis.
//   kReplicated: every rank computes the whole gradient (no sum);
//   kSharded: its own slice's whole gradient (no sum);
//   kPartial: a part; the sum over the ranks that hold the same slice is the gradient.
// (Along the data axis every gradient is partial until it is reduced.)
// Declared without knowledge of tp: key and value tensors (kKvHeads) say kSharded; where tp is above their number of
// heads, so that ranks share a slice, plan/ turns that to kPartial (each rank sees the queries of its own heads only).
struct GradientDeclaration {
  AxisState plain = AxisState::kReplicated;              // tensor parallelism without sequence parallelism
  AxisState sequence_parallel = AxisState::kReplicated;  // with it
};

enum class InitKind { kNormal, kZeros, kOnes };
struct Initialiser {
  InitKind kind = InitKind::kNormal;
  double standard_deviation = 0.0;
};

struct Parameter {
  std::string name;                 // Hugging Face's, e.g. "model.layers.3.self_attn.q_proj.weight"
  std::vector<std::int64_t> shape;  // global, Hugging Face's layout, row-major; one or two dimensions
  int unit = 0;
  Role role = Role::kTokenEmbedding;
  TensorSplit split;
  AxisState value = AxisState::kReplicated;  // along the tensor axis, of the weight
  GradientDeclaration gradient;              // along the tensor axis
  Initialiser init;
  bool decay = false;              // weight decay applies: matrices only
  bool input_first = false;        // of a projection: [in, out] (Conv1D), not [out, in] (Linear)
  bool also_used_by_head = false;  // tied: the head reads it and keeps its own gradient accumulator

  std::int64_t elements() const;
  std::int64_t rows() const { return shape[0]; }
  std::int64_t columns() const { return shape.size() > 1 ? shape[1] : 1; }
};

struct ParameterTable {
  Config config;
  std::vector<Parameter> parameters;  // by unit, in order of Role within a unit

  std::int64_t total() const;  // exact count; a tied tensor counts once
  // Index of the tensor of a role in a unit, or -1. The head's kHeadWeight finds the tied embedding.
  int find(int unit, Role role) const;
  int find(std::string_view name) const;  // -1 if absent
};

// gpt2: names without a prefix beyond Hugging Face's "transformer."; llama: "model." and "lm_head.weight".
// The other families name their tensors as llama does. What tensors there are is in the flows of the units (flow.h).
// Initialisers as the families' own training code:
// normal(initializer_range); gpt2's residual projections scaled by 1 / sqrt(2 layers) (GPT-2's paper, section 2.3);
// norms one (gemma's, which hold the difference from one: zero), biases zero.
ParameterTable make_parameter_table(const Config& config);

}  // namespace trireme::model
