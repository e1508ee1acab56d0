#pragma once

// Memory of a stage's rank in closed form: what the search screens with. For the engine's own layers the numbers come
// from the same tables as plan/memory.h's walk, and on one rank they are the walk's to the byte. So they are over many
// ranks, with two exceptions, each less than 2 % (rank_memory_test.cc): under the interleaved schedule an activation
// that arrives early or a boundary on its way, under ZeRO 3 weights gathered ahead where head and layers meet.

#include <array>
#include <cstdint>
#include <span>

#include "base/ledger.h"
#include "model/activations.h"
#include "planner/model_units.h"
#include "planner/problem.h"

namespace trireme::planner {

// Bytes of one unit's buffers for one micro-batch, by what becomes of them.
struct UnitBuffers {
  double kept = 0;             // forward to backward: input, kept groups
  double pending = 0;          // of a backward whose weight pass is still to come
  double backward = 0;         // besides `kept` while it is worked on backward: remade, its gradients
  double output_gradient = 0;  // of its output, made by the unit after it
};
struct ActivationBuffers {
  UnitBuffers embedding;
  UnitBuffers layer;
  UnitBuffers head;
  double boundary = 0;  // of a stage's output
};
// Of one rank at a tensor degree, micro-batch and recompute kind.
ActivationBuffers activation_buffers(const Problem& problem, const ModelUnits& units, int tp, bool sequence_parallel,
                                     std::int64_t micro_batch, model::Recompute recompute);

// What every stage holds whatever its layers, at the same choices.
struct FixedBuffers {
  double logits = 0;       // on the stage that holds the head, always
  double head_logits = 0;  // there, only while the loss is taken
  double workspace = 0;
  double tokens = 0;  // of one micro-batch: ids, or targets
};
FixedBuffers fixed_buffers(const Problem& problem, ModelUnits& units, int tp, bool sequence_parallel,
                           std::int64_t micro_batch);

// A pipeline stage as the memory and time sums see it.
struct StageShape {
  int layers = 0;
  int last_chunk_layers = 0;  // of the chunk whose backward comes first: the stage's last
  bool embedding = false;
  bool head = false;
};

// The part of the layout that decides the training state.
struct StateChoice {
  int zero = 0;
  bool reduce_each_micro_batch = false;
  int dp = 1;
  int pp = 1;
  int prefetch = 1;
};

// Micro-batches that a stage holds while it works on one backward, that one included: whole, and those that wait for
// their weight passes. Fractions where the schedule interleaves chunks.
struct Held {
  double whole = 1;
  double pending = 0;
};
// The moments of a step of which one holds most, whatever the sizes.
struct InFlight {
  std::array<Held, 3> held{};
  int moments = 1;              // entries of `held`
  double heads = 1;             // micro-batches whose head is there (head's stage)
  double inputs = 0;            // activations that arrived for forwards to come, at the first moment
  bool split_backward = false;  // weight passes come later: what they need of the whole chunk waits
  std::int64_t micro_batches = 1;
};
InFlight in_flight(plan::ScheduleKind schedule, int pp, int interleave, std::int64_t micro_batches, int stage);
// Layers whose activations a stage of the interleaved schedule holds at most, each for one micro-batch: exact where its
// chunks differ in size. `chunk_layers`: of the stage.
double interleaved_layers(int pp, std::int64_t micro_batches, int stage, std::span<const int> chunk_layers);

struct MemoryEstimate {
  std::array<double, kMemoryClassCount> by_class{};  // at the peak of the sum
  double ledger = 0;                                 // their sum: what a perfect allocator would need
  double context = 0;                                // device context, libraries, communicators
  double fragmentation = 0;
  double total() const { return ledger + context + fragmentation; }
  double& operator[](MemoryClass c) { return by_class[static_cast<std::size_t>(c)]; }
  double operator[](MemoryClass c) const { return by_class[static_cast<std::size_t>(c)]; }
};
MemoryEstimate stage_memory(const Problem& problem, const UnitElements& elements, const ActivationBuffers& activations,
                            const FixedBuffers& fixed, const StageShape& stage, const StateChoice& state,
                            const InFlight& in_flight);

// Bytes a layer keeps for one micro-batch as Korthikanti et al. 2022 count them (equation and figure 7); element: 2.
double megatron_layer_bytes(const ModelUnits::Unit& layer, std::int64_t micro_batch, std::int64_t sequence, int tp,
                            bool sequence_parallel, model::Recompute recompute, bool fused_attention, bool dropout);

}  // namespace trireme::planner
