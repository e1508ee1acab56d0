#pragma once

// Everything that one rank of a run owns, in the order of its dependence: device, arena (held to the prediction),
// communicators and the memory that they stage sums in, context, executor.

#include <memory>

#include "engine/parallel/executor.h"
#include "engine/parallel/rank_communicators.h"

namespace trireme::parallel {

struct RankOptions {
  std::uint64_t seed = 1;
  std::optional<Bytes> memory_limit = std::nullopt;
  bool poison = false;              // tests: new buffers are NaN
  std::int64_t timeline_spans = 0;  // room in the rank's timeline; 0: it has none
};

class Rank {
 public:
  // Constructed, used and destroyed by its own thread. `factory` may be null in a run of one rank. The arena refuses
  // anything that the plan did not predict.
  Rank(Env& env, Log& log, std::unique_ptr<kernels::Device> device, RunPlan plan, const RankOptions& options,
       const comm::CommunicatorFactory& factory = nullptr);

  const RunPlan& plan() const { return plan_; }
  const Ledger& predicted() const { return predicted_; }
  const Ledger& counted() const { return arena_.ledger(); }
  CommunicationRecords& communication() { return records_; }
  kernels::Device& device() { return *device_; }
  Executor& executor() { return *executor_; }

 private:
  RunPlan plan_;
  Ledger predicted_;
  std::unique_ptr<kernels::Device> device_;
  kernels::Arena arena_;
  plan::RankStaging staging_sizes_;
  kernels::Buffer staging_;
  CommunicationRecords records_;
  RankCommunicators communicators_;
  nn::RankContext context_;
  std::unique_ptr<Executor> executor_;
};

}  // namespace trireme::parallel
