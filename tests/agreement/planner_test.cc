// Laws 1 and 3, the planner's side: what `trireme plan` says of the engine's own layers, in closed form and by the
// walk, is what a run's ledger counts, to the byte, for each class at the peak and for the sum.

#include <gtest/gtest.h>

#include "planner/evaluator.h"
#include "support/tiny_run.h"

namespace trireme::testing {
namespace {

using model::Recompute;

planner::Problem problem_of(const model::Config& config, const plan::Batch& batch, int threads) {
  cluster::Cluster cluster;
  cluster.device = {
      .name = "core", .memory = {1'000'000'000}, .bf16_flops_per_s = 1, .fp32_flops_per_s = 1, .memory_bytes_per_s = 1};
  cluster.inside = cluster.between = {.bytes_per_s = 1, .latency = {}};
  planner::Problem problem = planner::make_problem(config, cluster, batch.global_batch, batch.sequence, DType::kF32,
                                                   planner::default_calibration(), "trireme")
                                 .or_throw();
  problem.inputs.threads = threads;
  problem.inputs.evaluation_micro_batches = 1;
  return problem;
}

struct Case {
  model::Config config;
  Recompute recompute = Recompute::kNone;
  plan::Batch batch;
  int threads = 1;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const model::Config& config : {tiny_gpt2(0.0), tiny_gpt2(0.1), tiny_llama(false), tiny_llama(true)}) {
    for (Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
      for (const plan::Batch& batch : {plan::Batch{6, 2, 17}, plan::Batch{1, 1, 1}, plan::Batch{3, 3, 32}}) {
        all.push_back({config, recompute, batch, batch.micro_batch == 3 ? 2 : 1});
      }
    }
  }
  return all;
}

Ledger counted_by_the_engine(const Case& c) {
  TinyRun run{.config = c.config, .batch = c.batch, .threads = c.threads};
  run.layout.recompute = c.recompute;
  TinyRank rank(run);
  rank.step();
  rank.step();
  return rank.rank().counted();
}

TEST(PlannerAgreement, TheClosedFormIsWhatTheEngineCounts) {
  for (const Case& c : cases()) {
    const Ledger counted = counted_by_the_engine(c);
    planner::Evaluator evaluator(problem_of(c.config, c.batch, c.threads));
    const planner::Choice choice{.micro_batch = c.batch.micro_batch, .recompute = c.recompute};
    const planner::MemoryEstimate planned = evaluator.estimate(choice).worst();
    const std::string what = model::family_name(c.config.family) + ", recompute " +
                             std::string(model::recompute_name(c.recompute)) + ", micro-batch " +
                             std::to_string(c.batch.micro_batch);
    EXPECT_EQ(static_cast<std::int64_t>(planned.ledger), counted.peak_sum().count) << what;
    for (int i = 0; i < kMemoryClassCount; ++i) {
      const auto memory_class = static_cast<MemoryClass>(i);
      EXPECT_EQ(static_cast<std::int64_t>(planned[memory_class]), counted.at_peak(memory_class).count)
          << what << ": " << memory_class_name(memory_class);
    }
  }
}

}  // namespace
}  // namespace trireme::testing
