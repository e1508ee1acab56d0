#include "planner/evaluator.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "planner/test_problems.h"

namespace trireme::planner {
namespace {

using model::Recompute;

Problem random_problem(Dice& dice) {
  const model::Config config = example_model(dice.one_of(example_models()));
  const std::string cluster = dice.one_of<std::string>({"h100:8", "h100:64", "h100:512", "a100-80:1024"});
  const std::string framework = dice.one_of<std::string>({"trireme", "megatron", "fsdp"});
  return problem_of(config, cluster, 1024, std::min<std::int64_t>(config.max_positions, 2048), framework);
}

// `visit(evaluator, choice)` for random layouts: 20 each of 50 problems.
template <class Visit>
void for_random_layouts(std::uint64_t seed, const Visit& visit) {
  Dice dice(seed);
  for (int i = 0; i < 50; ++i) {
    Evaluator evaluator(random_problem(dice));
    for (int j = 0; j < 20; ++j) visit(evaluator, random_choice(evaluator.problem(), dice));
  }
}

TEST(Evaluator, ScreeningIsTheEstimateWithoutItsSimulation) {
  for_random_layouts(1, [](Evaluator& evaluator, const Choice& choice) {
    const Screened screened = evaluator.screen(choice);
    const Estimate estimate = evaluator.estimate(choice);
    EXPECT_EQ(screened.time, estimate.closed_form_s) << describe(choice);
    EXPECT_EQ(evaluator.simulate(choice), estimate.step_s) << describe(choice);
    EXPECT_LE(screened.time, estimate.step_s * (1 + 1e-12)) << describe(choice);
    // The screening looks at some stages only: the worst is among them.
    double worst = 0;
    for (const MemoryEstimate& memory : estimate.memory) worst = std::max(worst, memory.total());
    EXPECT_EQ(screened.memory, worst) << describe(choice);
    EXPECT_EQ(estimate.worst().total(), worst) << describe(choice);
    ASSERT_EQ(estimate.memory.size(), static_cast<std::size_t>(choice.pp));
  });
}

TEST(Evaluator, PartsAddUp) {
  for_random_layouts(2, [](Evaluator& evaluator, const Choice& choice) {
    const Estimate e = evaluator.estimate(choice);
    const TimeParts& p = e.parts;
    EXPECT_NEAR(p.total(), e.step_s, 1e-9 * e.step_s) << describe(choice);
    for (double part :
         {p.gemm, p.attention, p.memory, p.tensor, p.pipeline, p.bubble, p.data, p.gathers, p.optimizer, p.overhead}) {
      EXPECT_GE(part, -1e-9 * e.step_s) << describe(choice);
    }
    EXPECT_GT(e.mfu, 0.0);
    EXPECT_LT(e.mfu, 1.0);
    const Problem& problem = evaluator.problem();
    EXPECT_EQ(e.micro_batches * choice.micro_batch * choice.dp, problem.global_batch);
    EXPECT_DOUBLE_EQ(e.tokens_per_s * e.step_s, static_cast<double>(problem.global_batch * problem.sequence));
  });
}

class Monotony : public testing::Test {
 protected:
  Problem problem_ = problem_of(example_model("llama-3-8b"), "h100:64", 128, 4096);
  Choice choice_{.tp = 8, .pp = 4, .dp = 2, .micro_batch = 2};
  static Estimate of(const Problem& problem, const Choice& choice) { return Evaluator(problem).estimate(choice); }
  Estimate with(void (*change)(Choice&)) const {
    Choice changed = choice_;
    change(changed);
    return of(problem_, changed);
  }
};

TEST_F(Monotony, RecomputeTakesTimeAndGivesMemory) {
  const Estimate none = of(problem_, choice_);
  const Estimate selective = with([](Choice& c) { c.recompute = Recompute::kSelective; });
  const Estimate full = with([](Choice& c) { c.recompute = Recompute::kFull; });
  EXPECT_LT(none.step_s, selective.step_s);
  EXPECT_LT(selective.step_s, full.step_s);
  EXPECT_GT(none.worst().total(), selective.worst().total());
  EXPECT_GT(selective.worst().total(), full.worst().total());
  EXPECT_NEAR(full.parts.gemm / none.parts.gemm, 4.0 / 3.0, 0.05);
}

TEST_F(Monotony, TensorParallelismAcrossHostsIsSlower) {
  Problem small_hosts = problem_;
  small_hosts.cluster.devices_per_host = 2;
  small_hosts.cluster.hosts = 32;
  small_hosts.cluster.cards_per_host = 2;
  const Estimate inside = of(problem_, choice_), across = of(small_hosts, choice_);
  EXPECT_GT(across.parts.tensor, 2 * inside.parts.tensor);
  EXPECT_GT(across.step_s, inside.step_s);
  EXPECT_EQ(across.parts.gemm, inside.parts.gemm);
  EXPECT_EQ(across.worst().total(), inside.worst().total());
}

TEST_F(Monotony, ZeroShardsTheState) {
  double before = 0;
  for (int zero : {3, 2, 1, 0}) {
    Choice c = choice_;
    c.zero = zero;
    c.reduce = plan::default_reduce(zero);
    const MemoryEstimate memory = of(problem_, c).memory[1];
    const double state = memory[MemoryClass::kWeights] + memory[MemoryClass::kGradients] +
                         memory[MemoryClass::kMasterWeights] + memory[MemoryClass::kMoments];
    EXPECT_GT(state, before) << zero;
    before = state;
  }
  EXPECT_GT(with([](Choice& c) { c.zero = 3; }).parts.gathers, 0.0);
  EXPECT_EQ(of(problem_, choice_).parts.gathers, 0.0);
}

TEST_F(Monotony, SequenceParallelismGivesMemoryAlone) {
  const Estimate plain = of(problem_, choice_), parallel = with([](Choice&c) { c.sequence_parallel = true; });
  EXPECT_LT(parallel.worst().total(), plain.worst().total());
  EXPECT_LE(parallel.step_s, plain.step_s);
  EXPECT_DOUBLE_EQ(parallel.parts.tensor, plain.parts.tensor);
}

TEST_F(Monotony, SchedulesTradeBubbleForMemory) {
  using enum plan::ScheduleKind;
  const Estimate gpipe = with([](Choice&c) { c.schedule = kGpipe; }), one = of(problem_, choice_);
  const Estimate interleaved = with([](Choice& c) {
    c.schedule = kInterleaved;
    c.interleave = 2;
  });
  const Estimate zero_bubble = with([](Choice& c) { c.schedule = kZeroBubbleH1; });
  EXPECT_GT(gpipe.worst().total(), 2 * one.worst().total());
  EXPECT_LT(interleaved.parts.bubble, one.parts.bubble);
  EXPECT_GT(interleaved.parts.pipeline, one.parts.pipeline);
  EXPECT_LT(zero_bubble.parts.bubble, one.parts.bubble);
  EXPECT_GE(zero_bubble.worst().total(), one.worst().total());
}

TEST_F(Monotony, BetterHardwareIsNotSlower) {
  const double time = of(problem_, choice_).step_s;
  const auto faster = [&](auto change) {
    Problem problem = problem_;
    change(problem);
    return of(problem, choice_).step_s;
  };
  EXPECT_LT(faster([](Problem& p) { p.cluster.device.bf16_flops_per_s *= 2; }), time);
  EXPECT_LT(faster([](Problem& p) { p.cluster.device.memory_bytes_per_s *= 2; }), time);
  EXPECT_LT(faster([](Problem& p) { p.cluster.inside.bytes_per_s *= 2; }), time);
  EXPECT_LT(faster([](Problem& p) { p.cluster.between.bytes_per_s *= 2; }), time);
  EXPECT_LT(faster([](Problem& p) { p.device.gemm_half_extent /= 2; }), time);
  EXPECT_GT(faster([](Problem& p) { p.framework.step_overhead += 0.1; }), time);
  EXPECT_GT(faster([](Problem& p) { p.global_batch *= 2; }), 1.5 * time);
}

TEST(Problem, RefusesWhatNoLayoutMends) {
  const model::Config config = example_model("gpt2");
  cluster::Cluster cluster = preset("h100");
  const auto refusal = [&](std::int64_t batch, std::int64_t sequence, const std::string& framework) {
    const Result<Problem> problem =
        make_problem(config, cluster, batch, sequence, DType::kBF16, default_calibration(), framework);
    return problem ? "" : problem.failure().option;
  };
  EXPECT_EQ(refusal(1, 1024, "trireme"), "");
  EXPECT_EQ(refusal(1, 1025, "trireme"), "sequence");
  EXPECT_EQ(refusal(1, 0, "trireme"), "sequence");
  EXPECT_EQ(refusal(0, 1024, "trireme"), "batch");
  EXPECT_EQ(refusal(1, 1024, "trirem"), "framework");
  cluster.device.bf16_flops_per_s = 0;
  EXPECT_EQ(refusal(1, 1024, "trireme"), "precision");
}

TEST(Choice, IsALayoutAndBack) {
  const Problem problem = problem_of(example_model("llama-3-8b"), "h100:64", 128, 4096);
  Dice dice(3);
  for (int i = 0; i < 50; ++i) {
    const Choice choice = random_choice(problem, dice);
    EXPECT_EQ(choice_of(choice.layout(), choice.micro_batch), choice);
  }
  EXPECT_EQ(describe({.tp = 2, .zero = 2, .order = plan::AxisOrder::kTpDpPp}),
            "dp 1 x tp 2 x pp 1, zero 2, micro-batch 1, recompute none, tp-dp-pp, reduce step");
}

}  // namespace
}  // namespace trireme::planner
