#pragma once

// A rank's program for one step: the schedule's chunk actions, each expanded into its layer program, then the end of
// the step. The executor interprets it and knows no strategy of its own; the memory and traffic predictions walk the
// very same list. One rank without ZeRO is the degenerate program, not a special case.

#include <cstdint>
#include <string>
#include <vector>

#include "model/activations.h"
#include "model/parameters.h"
#include "plan/buckets.h"
#include "plan/layout.h"
#include "plan/schedule.h"
#include "plan/slices.h"

namespace trireme::plan {

enum class Op {
  // Memory of activations: group of (unit, micro_batch). kAllocate comes before the first writer, kFree after the last
  // reader.
  kAllocate,
  kFree,
  // Boundary buffers of a chunk (class communication buffers): the output of its last unit on its way to the next
  // stage, the gradient of its first unit's input on its way back; freed when the next one of that direction is about
  // to be made, or after the last pass, so that a send has the time in between. A received activation lands in the
  // first unit's input, a received gradient in the last unit's kOutputGradient. With tied_head: where the gradient of
  // the head's copy of a tied embedding arrives at the embedding's stage, around kSumTied.
  kAllocateBoundary,
  kFreeBoundary,
  kSendActivation,
  kReceiveActivation,
  kSendGradient,
  kReceiveGradient,
  // Weights of a shard unit under ZeRO-3 (class gathered parameters).
  kGather,
  kRelease,
  // Work of a unit for one micro-batch. The head's loss, and everything that needs the logits, is in kBackwardInput
  // (one pass over the logits, in row blocks; docs/decisions): its kForward is the final norm alone.
  kForward,
  kRecompute,
  kBackwardInput,
  kBackwardWeight,
  kEvaluateLoss,  // head: losses alone (evaluation program)
  // Gradients of a shard unit. kOpenGradient allocates a full buffer for one micro-batch's gradient where the
  // accumulator is sharded or sums ranks each micro-batch; kReduce sums a bucket over the data axis (reduce-scatter to
  // owners, plus all-gather where every rank keeps the whole: ZeRO 0); kCloseGradient frees the buffer.
  kOpenGradient,
  kReduce,
  kCloseGradient,
  // Gradients of tensors whose declaration is "partial" along the tensor axis are summed over it.
  kReduceTensorPartial,
  // End of the step.
  kSumTied,        // the head's accumulator is added to the embedding's (pp > 1: over the tied group)
  kGradientNorm,   // over all axes, each logical parameter once; yields the clip factor
  kUpdate,         // optimizer on the part that this rank owns
  kGatherUpdated,  // ZeRO 1 and 2: all-gather of updated weights
  kRefreshTied,    // the copy of the tied embedding
};
std::string_view op_name(Op op);

struct Instruction {
  Op op = Op::kForward;
  int micro_batch = -1;
  int chunk = -1;
  int unit = -1;           // model unit; for gradients, weights and updates the shard unit's unit
  bool tied_head = false;  // selects the tied head's shard unit
  model::ActivationGroup group = model::ActivationGroup::kInput;  // kAllocate, kFree
  bool backward = false;  // kAllocateBoundary, kFreeBoundary: the gradient's buffer
  int peer = -1;          // world rank at the other end
  int bucket = -1;        // kReduce: index into RankProgram::buckets; `unit` is the one that completes it
  friend bool operator==(const Instruction&, const Instruction&) = default;
};
std::string describe(const Instruction& instruction);

struct RankProgram {
  std::vector<Instruction> instructions;
  std::vector<Chunk> chunks;           // of this rank's stage, by chunk number
  std::vector<ShardUnit> shard_units;  // of this rank
  std::vector<Bucket> buckets;         // of their gradients
};

// Index of the shard unit that an instruction on gradients or weights is about (CHECK: there is one).
int shard_unit_index(const RankProgram& program, const Instruction& instruction);

// The whole step of one rank. check_layout must have passed (CHECK).
RankProgram make_program(const model::ParameterTable& table, const Layout& layout, const Batch& batch, int rank);

// A validation pass over one micro-batch (pp = 1 or any stage): forwards, loss, nothing kept, no gradient.
RankProgram make_evaluation_program(const model::ParameterTable& table, const Layout& layout, const Batch& batch,
                                    int rank);

}  // namespace trireme::plan
