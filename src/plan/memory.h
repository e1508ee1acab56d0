#pragma once

// Predicted memory and traffic of a rank: a walk over its program. No engine, no I/O. Law 1: the arena's ledger and the
// communicator's counters agree with these to the byte.

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/ledger.h"
#include "plan/program.h"

namespace trireme::plan {

// What the prediction needs to know of the run beyond model, layout and batch.
struct RunInputs {
  int threads = 1;                          // compute threads of a rank: attention's scratch is a strip a thread
  DType compute = DType::kF32;              // weights, activations, gradients (kF64: the reference run)
  std::int64_t evaluation_micro_batches = 0;  // > 0: validation passes happen between steps
};

// Buffers that live through the whole run, in the order in which the engine allocates them. Flat buffers are of one
// shard unit each; sizes are as asked for, the ledger rounds.
enum class StaticKind {
  kWeights,        // of a shard unit, flat (ZeRO 3: this rank's shard)
  kGradients,      // accumulator of a shard unit, flat (sharded where ZeRO >= 2 reduces each micro-batch)
  kMasterWeights,  // of the part that this rank updates; none in fp32 and float64
  kFirstMoment,
  kSecondMoment,
  kInputs,   // token ids, int32, of all micro-batches of a step (ranks that hold the embedding)
  kTargets,  // the same of targets (ranks that hold the head)
  kEvaluationInputs,   // of one micro-batch, where validation happens between steps
  kEvaluationTargets,
  kLogits,    // [logit_rows, local vocabulary] (head ranks)
  kRowTerms,  // [3, logit_rows]
  kLosses,    // [T]
  kWorkspace,  // workspace_bytes()
};
std::string_view static_kind_name(StaticKind kind);
struct StaticBuffer {
  MemoryClass memory_class = MemoryClass::kWeights;
  StaticKind kind = StaticKind::kWeights;
  int shard_unit = -1;  // index into RankProgram::shard_units, or -1
  Bytes bytes;
};
std::vector<StaticBuffer> static_buffers(const model::ParameterTable& table, const Layout& layout,
                                         const Batch& batch, const RunInputs& inputs, int rank);

// Bytes of one allocation instruction (kAllocate, kAllocateBoundary, kGather, kOpenGradient and their ends): the sum
// of allocation_size() over its buffers, each buffer on its own.
struct Booking {
  MemoryClass memory_class = MemoryClass::kSavedActivations;
  std::vector<Bytes> buffers;
};
Booking booking_of(const model::ParameterTable& table, const Layout& layout, const Batch& batch,
                   const RunInputs& inputs, const RankProgram& program, const Instruction& instruction);

// Static buffers, then the program of a step walked once (and the evaluation program, if any): peaks by class and of
// the sum.
Ledger predict_memory(const model::ParameterTable& table, const Layout& layout, const Batch& batch,
                      const RunInputs& inputs, int rank);

// Bytes that a rank sends in one step, by axis and collective.
enum class Collective { kSend, kAllReduce, kReduceScatter, kAllGather, kBroadcast };
std::string_view collective_name(Collective collective);
struct Traffic {
  std::int64_t calls = 0;
  Bytes sent;
};
using TrafficTable = std::map<std::pair<Axis, Collective>, Traffic>;
// Direct reduce-scatter and ring all-gather: an all-reduce of n elements over N ranks is the first and then the second;
// rank r's share of n elements is [r n / N, (r + 1) n / N) (floor). A rank sends, to each other rank, that rank's share
// (reduce-scatter); and forwards every share but its successor's around the ring (all-gather).
TrafficTable predict_traffic(const model::ParameterTable& table, const Layout& layout, const Batch& batch,
                             const RunInputs& inputs, int rank);

}  // namespace trireme::plan
