#pragma once

// Predicted memory and traffic of a rank: a walk over its program. No engine, no I/O. Law 1: the arena's ledger and the
// communicator's counters agree with these to the byte.

#include <cstdint>
#include <map>
#include <string>
#include <utility>

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

// Buffers that live through the whole run.
struct StaticBytes {
  Bytes weights;
  Bytes gradients;
  Bytes master_weights;
  Bytes moments;
  Bytes token_batch;     // inputs and targets of all micro-batches of a step, int32
  Bytes logits_and_loss; // one block of logit rows and per-token losses (last stage)
  Bytes workspace;       // workspace_bytes()
};
StaticBytes static_bytes(const model::ParameterTable& table, const Layout& layout, const Batch& batch,
                         const RunInputs& inputs, int rank);

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
