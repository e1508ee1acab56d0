#pragma once

// Predicted memory of a rank: a walk over its program. No engine, no I/O. Law 1: the arena's ledger agrees with it to
// the byte.

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/ledger.h"
#include "plan/checkpoint_tiles.h"
#include "plan/program.h"

namespace trireme::plan {

// How ranks reach each other: threads read each other's buffers, messages are staged.
enum class Backend { kThreads, kMessages };

// What the prediction needs to know of the run beyond model, layout and batch.
struct RunInputs {
  int threads = 1;                            // compute threads of a rank: attention's scratch is a strip a thread
  DType compute = DType::kF32;                // weights and activations: kF32, kBF16, kF16, or kF64 (reference run)
  bool fp32_gradients = false;                // narrow compute: gradients in fp32 (18 bytes a parameter, not 16)
  std::int64_t evaluation_micro_batches = 0;  // > 0: validation passes happen between steps
  bool masked_targets = false;                // some targets bear no loss, so replicas count those that do
  Backend backend = Backend::kThreads;
  CheckpointStaging checkpoints = CheckpointStaging::kNone;
  std::vector<int> host_of = {};  // by world rank, the number of its host; empty: all on one. For kHierarchical alone
};

// The words for it: "fp32", "bf16", "fp16".
Result<DType> parse_precision(std::string_view text);
std::string_view precision_name(DType compute);

// Types beside the compute type. Narrow ones keep fp32 master weights and moments; statistics, loss and scratch are
// fp32.
DType gradient_dtype(const RunInputs& inputs);  // accumulators, buckets and the wire
DType state_dtype(const RunInputs& inputs);     // moments, statistics, logits, scratch
bool has_master_weights(const RunInputs& inputs);

// Buffers that live through the whole run, in the order in which the engine allocates them. Those with a shard unit are
// of it alone, flat; sizes are as asked for, the ledger rounds.
enum class StaticKind {
  kStaging,    // of all communicators, one after the other: RankStaging::sum(). The rank's own (engine/parallel/rank)
  kWeights,    // of a shard unit, flat (ZeRO 3: this rank's shard)
  kGradients,  // accumulators of all shard units, one after the other (sharded where ZeRO >= 2 reduces each
               // micro-batch), so that buckets are contiguous
  kMasterWeights,  // of the part that this rank updates; none in fp32 and float64
  kFirstMoment,
  kSecondMoment,
  kInputs,            // token ids, int32, of all micro-batches of a step (ranks that hold the embedding)
  kTargets,           // the same of targets (ranks that hold the head)
  kEvaluationInputs,  // of one micro-batch, where validation happens between steps
  kEvaluationTargets,
  kLogits,             // [logit_rows, local vocabulary] (head ranks)
  kRowTerms,           // [3, logit_rows]
  kLosses,             // [T]
  kWorkspace,          // workspace_bytes()
  kCheckpointStaging,  // checkpoint_staging_bytes()
};
std::string_view static_kind_name(StaticKind kind);
// Of a shard unit's part of kGradients: a multiple of kScalarBlock.
std::int64_t accumulator_elements(const ShardUnit& unit, const Layout& layout);
struct StaticBuffer {
  MemoryClass memory_class = MemoryClass::kWeights;
  StaticKind kind = StaticKind::kWeights;
  int shard_unit = -1;  // index into RankProgram::shard_units, or -1
  Bytes bytes;
};
std::vector<StaticBuffer> static_buffers(const model::ParameterTable& table, const Layout& layout, const Batch& batch,
                                         const RunInputs& inputs, int rank);

// What one instruction allocates or frees: the sizes of its buffers, as asked for, in the order of
// model::saved_activations.
struct Booking {
  MemoryClass memory_class = MemoryClass::kSavedActivations;
  std::vector<Bytes> buffers;
};

// Bookings of a program's instructions. Keeps a reference to the program.
class BookingTable {
 public:
  BookingTable(const model::ParameterTable& table, const Layout& layout, const Batch& batch, const RunInputs& inputs,
               int rank, const RankProgram& program);
  Booking operator()(const Instruction& instruction) const;

 private:
  const model::Config& config_;
  std::int64_t element_;
  std::int64_t gradient_element_;
  const RankProgram& program_;
  Bytes boundary_;
  Bytes tied_boundary_;
  std::vector<std::array<std::vector<Bytes>, model::kActivationGroupCount>> groups_;  // by model::flow_class
};

// Static buffers, then the program of a step walked once (and the evaluation program, if any): peaks by class and of
// the sum.
Ledger predict_memory(const model::ParameterTable& table, const Layout& layout, const Batch& batch,
                      const RunInputs& inputs, int rank);

}  // namespace trireme::plan
