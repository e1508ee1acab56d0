#include "planner/search.h"

#include <algorithm>
#include <functional>
#include <limits>

#include <gtest/gtest.h>

#include "base/fake_env.h"
#include "planner/bounded_best.h"
#include "planner/explain.h"
#include "planner/test_problems.h"

namespace trireme::planner {
namespace {

using model::Recompute;
using plan::ScheduleKind;

SearchResult run(const Problem& problem, const SearchOptions& options = {}) {
  Evaluator evaluator(problem);
  FakeEnv clock;
  return search(evaluator, options, clock);
}

// All layouts of a world, by nothing but check_layout: ways of reducing and prefetch as the search takes them.
void for_each_layout(const Problem& problem, int world, const std::function<void(const Choice&)>& visit) {
  const auto each_batch = [&](Choice c, std::int64_t sequences) {
    for (c.micro_batch = 1; c.micro_batch <= sequences; ++c.micro_batch) {
      for (bool parallel : {false, true}) {
        for (Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
          for (plan::AxisOrder order : {plan::AxisOrder::kTpPpDp, plan::AxisOrder::kTpDpPp}) {
            for (int zero = 0; zero <= (c.dp > 1 ? 3 : 0); ++zero) {
              c.sequence_parallel = parallel;
              c.recompute = recompute;
              c.order = order;
              c.zero = zero;
              c.reduce = plan::default_reduce(zero);
              if (plan::check_layout(problem.config, c.layout(), problem.batch(c.micro_batch)).ok()) visit(c);
            }
          }
        }
      }
    }
  };
  for (int tp = 1; tp <= std::min(world, problem.cluster.devices_per_host); ++tp) {
    for (int pp = 1; pp <= world / tp; ++pp) {
      if (world % (tp * pp) != 0 || problem.global_batch % (world / tp / pp) != 0) continue;
      Choice c{.tp = tp, .pp = pp, .dp = world / tp / pp};
      for (ScheduleKind schedule :
           {ScheduleKind::kOneFOneB, ScheduleKind::kGpipe, ScheduleKind::kZeroBubbleH1, ScheduleKind::kInterleaved}) {
        if (pp == 1 && schedule != ScheduleKind::kOneFOneB) continue;
        c.schedule = schedule;
        const int most = schedule == ScheduleKind::kInterleaved ? static_cast<int>(problem.config.layers) / pp : 1;
        for (c.interleave = schedule == ScheduleKind::kInterleaved ? 2 : 1; c.interleave <= most; ++c.interleave) {
          each_batch(c, problem.global_batch / c.dp);
        }
      }
    }
  }
}

struct Whole {
  std::int64_t fitting = 0;
  double best = std::numeric_limits<double>::infinity();
};
Whole brute_force(const Problem& problem, Objective objective) {
  Evaluator evaluator(problem);
  Whole whole;
  const auto memory = static_cast<double>(problem.cluster.device.memory.count);
  const auto devices = static_cast<int>(problem.cluster.devices());
  for (int world = devices;; world /= 2) {
    for_each_layout(problem, world, [&](const Choice& c) {
      const double bytes = evaluator.screen(c).memory;
      if (bytes > memory) return;
      // Where one axis is of one, both orders are the same layout.
      if (c.order == plan::AxisOrder::kTpPpDp || (c.pp > 1 && c.dp > 1)) ++whole.fitting;
      const double value = objective == Objective::kHeadroom ? bytes
                           : objective == Objective::kCost   ? evaluator.simulate(c) * c.world()
                                                             : evaluator.simulate(c);
      whole.best = std::min(whole.best, value);
    });
    if (objective != Objective::kCost || world / 2 < problem.cluster.devices_per_host) break;
  }
  return whole;
}
double value_of(const Estimate& e, Objective objective) {
  switch (objective) {
    case Objective::kTime:
      return e.step_s;
    case Objective::kCost:
      return e.step_s * e.choice.world();
    case Objective::kHeadroom:
      return e.worst().total();
  }
  return 0;
}

struct Small {
  std::string model, cluster;
  std::int64_t batch;
};
std::vector<Small> small_problems() {
  return {{"gpt2", "a100-40:8", 16},
          {"tinyllama-1.1b", "h100:16", 16},
          {"llama-3-8b", "h100:32", 32},
          {"qwen2.5-7b", "a100-40:64", 64},
          {"llama-2-70b", "h100:64", 16}};
}

TEST(Search, FindsWhatTryingAllFinds) {
  for (const Small& small : small_problems()) {
    const Problem problem = problem_of(example_model(small.model), small.cluster, small.batch, 1024);
    for (Objective objective : {Objective::kTime, Objective::kCost, Objective::kHeadroom}) {
      const SearchResult found = run(problem, {.objective = objective});
      const SearchResult all = run(problem, {.objective = objective, .exhaustive = true});
      const Whole whole = brute_force(problem, objective);
      const std::string what = small.model + " by " + std::string(objective_name(objective));
      EXPECT_EQ(found.fitting, whole.fitting) << what;
      EXPECT_LE(found.simulated, all.simulated) << what;
      ASSERT_TRUE(found.winner() && all.winner()) << what;
      EXPECT_TRUE(found.winner_proved) << what;
      EXPECT_EQ(value_of(*found.winner(), objective), value_of(*all.winner(), objective)) << what;
      EXPECT_DOUBLE_EQ(value_of(*found.winner(), objective), whole.best) << what << describe(found.winner()->choice);
      EXPECT_TRUE(std::ranges::is_sorted(found.best, {}, [&](const Estimate& e) { return value_of(e, objective); }))
          << what;
    }
  }
}

TEST(Search, ParetoSetHasNoDominatedMember) {
  for (const Small& small : small_problems()) {
    const SearchResult found = run(problem_of(example_model(small.model), small.cluster, small.batch, 1024));
    ASSERT_FALSE(found.pareto.empty());
    for (std::size_t i = 1; i < found.pareto.size(); ++i) {
      EXPECT_GT(found.pareto[i].step_s, found.pareto[i - 1].step_s);
      EXPECT_LT(found.pareto[i].worst().total(), found.pareto[i - 1].worst().total());
    }
    // The winner, or one that is as fast and no larger.
    const Estimate& winner = *found.winner();
    EXPECT_TRUE(std::ranges::any_of(found.pareto, [&](const Estimate& e) {
      return e.step_s <= winner.step_s && e.worst().total() <= winner.worst().total();
    })) << small.model;
  }
}

TEST(Search, NearMissesAreFasterAndDoNotFit) {
  const Problem problem = problem_of(example_model("llama-3-8b"), "a100-40:16", 32, 4096);
  const SearchResult found = run(problem);
  ASSERT_TRUE(found.winner());
  ASSERT_FALSE(found.near_misses.empty());
  Evaluator evaluator(problem);
  for (const NearMiss& miss : found.near_misses) {
    const Screened screened = evaluator.screen(miss.choice);
    EXPECT_GT(miss.shortage, 0.0);
    EXPECT_DOUBLE_EQ(miss.shortage, screened.memory - static_cast<double>(problem.cluster.device.memory.count));
    EXPECT_EQ(miss.time, screened.time);
    EXPECT_LT(miss.time, found.winner()->step_s);
  }
  EXPECT_TRUE(std::ranges::is_sorted(found.near_misses, {}, &NearMiss::time));
  EXPECT_FALSE(found.smallest);
}

TEST(Search, WhereNothingFitsNamesTheSmallest) {
  const SearchResult found = run(problem_of(example_model("llama-3.1-405b"), "a100-40:8", 8, 1024));
  EXPECT_EQ(found.winner(), nullptr);
  EXPECT_EQ(found.fitting, 0);
  EXPECT_GT(found.screened, 0);
  EXPECT_TRUE(found.pareto.empty());
  EXPECT_FALSE(found.winner_proved && found.simulated > 0);
  ASSERT_TRUE(found.smallest);
  EXPECT_GT(found.smallest->shortage, 0.0);
}

TEST(Search, HonoursWhatIsWanted) {
  const Problem problem = problem_of(example_model("tinyllama-1.1b"), "h100:16", 32, 1024);
  const auto all = [&](const Wanted& wanted, const std::function<bool(const Choice&)>& holds) {
    const SearchResult found = run(problem, {.wanted = wanted, .show = 50});
    EXPECT_FALSE(found.best.empty());
    for (const Estimate& e : found.best) EXPECT_TRUE(holds(e.choice)) << describe(e.choice);
    for (const Estimate& e : found.pareto) EXPECT_TRUE(holds(e.choice)) << describe(e.choice);
  };
  all({.tp = 4}, [](const Choice& c) { return c.tp == 4; });
  all({.pp = 2}, [](const Choice& c) { return c.pp == 2; });
  all({.dp = 16}, [](const Choice& c) { return c.dp == 16; });
  all({.interleave = 3}, [](const Choice& c) { return c.interleave == 3; });
  all({.zero = 1}, [](const Choice& c) { return c.zero == 1; });
  all({.micro_batch = 2}, [](const Choice& c) { return c.micro_batch == 2; });
  all({.schedule = ScheduleKind::kGpipe}, [](const Choice& c) { return c.schedule == ScheduleKind::kGpipe; });
  all({.recompute = Recompute::kFull}, [](const Choice& c) { return c.recompute == Recompute::kFull; });
  all({.order = plan::AxisOrder::kTpDpPp}, [](const Choice& c) { return c.order == plan::AxisOrder::kTpDpPp; });
  all({.sequence_parallel = true}, [](const Choice& c) { return c.sequence_parallel && c.tp > 1; });
  all({.tp = 16, .allow_slow_tp = true}, [](const Choice& c) { return c.tp == 16; });
  EXPECT_EQ(run(problem, {.wanted = {.tp = 16}}).winner(), nullptr);  // across hosts
  EXPECT_EQ(run(problem, {.wanted = {.tp = 3}}).winner(), nullptr);
  EXPECT_GT(run(problem, {.wanted = {.wide = true}}).screened, run(problem).screened);
  const SearchResult tight = run(problem, {.device_memory = {8'000'000'000}});
  ASSERT_TRUE(tight.winner());
  EXPECT_LE(tight.winner()->worst().total(), 8e9);
  EXPECT_LT(tight.fitting, run(problem).fitting);
  EXPECT_EQ(run(problem, {.show = 3}).best.size(), 3U);
}

TEST(Degrees, TensorStaysInTheHostAndPipelineInTheLayers) {
  const Problem problem = problem_of(example_model("llama-3-8b"), "h100:64", 64, 1024);
  EXPECT_EQ(legal_tensor_degrees(problem, 64, false), (std::vector<int>{1, 2, 4, 8}));
  EXPECT_EQ(legal_tensor_degrees(problem, 64, true), (std::vector<int>{1, 2, 4, 8, 16, 32}));
  EXPECT_EQ(legal_tensor_degrees(problem, 4, true), (std::vector<int>{1, 2, 4}));
  EXPECT_EQ(legal_pipeline_degrees(problem, 64, 1), (std::vector<int>{1, 2, 4, 8, 16, 32}));
  EXPECT_EQ(legal_pipeline_degrees(problem, 64, 16), (std::vector<int>{1, 2, 4}));
  EXPECT_TRUE(legal_pipeline_degrees(problem, 64, 3).empty());
  // 28 heads on 4; 28 does not divide its ffn.
  const Problem qwen = problem_of(example_model("qwen2.5-7b"), "h100:64", 64, 1024);
  EXPECT_EQ(legal_tensor_degrees(qwen, 56, true), (std::vector<int>{1, 2, 4}));
}

TEST(SmallestWorld, FitsAndNoSmallerDoes) {
  const Problem problem = problem_of(example_model("llama-2-7b"), "a100-40:64", 64, 2048);
  std::optional<NearMiss> best;
  const std::int64_t world = smallest_fitting_world(problem, {}, 256, best);
  ASSERT_GT(world, 1);
  ASSERT_TRUE(best);
  EXPECT_EQ(best->choice.world(), world);
  EXPECT_LE(best->shortage, 0.0);
  const auto fitting = [&](std::int64_t devices) {
    Problem p = problem;
    p.cluster = cluster::with_devices(problem.cluster, devices).or_throw();
    return run(p).fitting;
  };
  EXPECT_GT(fitting(world), 0);
  EXPECT_EQ(fitting(world > 8 ? world - 8 : world / 2), 0);

  best.reset();
  const Problem large = problem_of(example_model("llama-3.1-405b"), "a100-40:8", 64, 2048);
  EXPECT_EQ(smallest_fitting_world(large, {}, 16, best), 0);
  EXPECT_FALSE(best);
}

TEST(Search, ManyLayersEnd) {
  const Problem problem = problem_of(gpt(10'080, 64, 4), "h100:64", 1024, 2048);
  const SearchResult found = run(problem);
  EXPECT_LT(found.screened, 200'000);
  for (const Estimate& e : found.best) EXPECT_LE(e.choice.interleave, 64);
  SearchOptions asked;
  asked.wanted.pp = 2;
  asked.wanted.interleave = 500;
  ASSERT_TRUE(run(problem, asked).winner());
  EXPECT_EQ(run(problem, asked).winner()->choice.interleave, 500);
}

// What is not given is completed, so that the refusal is about what is.
TEST(WhyNot, NamesAValueThatWasGiven) {
  const Problem problem = problem_of(example_model("gpt2"), "h100:8", 512, 1024);
  const auto refusal = [&](const Wanted& wanted) {
    const WhyNot answer = why_not(problem, {}, wanted, posix_env());
    return answer.illegal ? answer.illegal->option + " = " + answer.illegal->value + "; " + answer.illegal->nearest
                          : "";
  };
  EXPECT_EQ(refusal({.dp = 3}), "layout.dp = 3; 2, 4");
  EXPECT_EQ(refusal({.dp = 1}), "");  // tp 4 x pp 2
  EXPECT_EQ(refusal({.dp = 1, .zero = 3}), "layout.zero = 3; 0");
  EXPECT_EQ(refusal({.interleave = 7}), "layout.interleave = 7; 6");
  EXPECT_EQ(refusal({.pp = 8, .schedule = plan::ScheduleKind::kInterleaved}), "layout.schedule = interleaved; 1f1b");
  EXPECT_EQ(refusal({.tp = 16}), "layout.tp = 16; 4");
  const Problem odd = problem_of(example_model("gpt2"), "h100:8", 6, 1023);
  EXPECT_EQ(why_not(odd, {}, {.dp = 4}, posix_env()).illegal->option, "train.global_batch");
  EXPECT_EQ(why_not(odd, {}, {.sequence_parallel = true}, posix_env()).illegal->option, "train.sequence");
}

TEST(Objective, Names) {
  for (Objective objective : {Objective::kTime, Objective::kCost, Objective::kHeadroom}) {
    EXPECT_EQ(parse_objective(objective_name(objective)).or_throw(), objective);
  }
  EXPECT_EQ(parse_objective("speed").failure().nearest, "time, cost, headroom");
}

TEST(BoundedBest, KeepsTheSmallestAndOfEqualsTheEarlier) {
  BoundedBest<int> best(3);
  const double keys[] = {5, 1, 4, 1, 1, 0, 1};
  for (int i = 0; i < 3; ++i) best.offer(keys[i], i);
  EXPECT_FALSE(best.dropped());
  for (int i = 3; i < 7; ++i) best.offer(keys[i], i);
  EXPECT_TRUE(best.dropped());
  EXPECT_EQ(best.take(), (std::vector<int>{5, 1, 3}));
  EXPECT_TRUE(best.take().empty());
}

}  // namespace
}  // namespace trireme::planner
