#pragma once

// Everything that a run of one rank owns, in the order of its dependence: device, arena (held to the prediction),
// communicators of one, context, executor.

#include <memory>

#include "engine/parallel/executor.h"

namespace trireme::parallel {

struct LocalRankOptions {
  std::uint64_t seed = 1;
  std::optional<Bytes> memory_limit = std::nullopt;
  bool poison = false;  // tests: new buffers are NaN
};

class LocalRank {
 public:
  // plan.layout.world() must be 1. The arena refuses anything that the plan did not predict.
  LocalRank(Env& env, Log& log, std::unique_ptr<kernels::Device> device, RunPlan plan, const LocalRankOptions& options);

  const RunPlan& plan() const { return plan_; }
  const Ledger& predicted() const { return predicted_; }
  const Ledger& counted() const { return arena_.ledger(); }
  kernels::Device& device() { return *device_; }
  Executor& executor() { return *executor_; }

 private:
  RunPlan plan_;
  Ledger predicted_;
  std::unique_ptr<kernels::Device> device_;
  kernels::Arena arena_;
  std::unique_ptr<comm::Communicator> tensor_;
  std::unique_ptr<comm::Communicator> pipeline_;
  std::unique_ptr<comm::Communicator> data_;
  nn::RankContext context_;
  std::unique_ptr<Executor> executor_;
};

}  // namespace trireme::parallel
