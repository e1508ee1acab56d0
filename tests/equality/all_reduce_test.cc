// How replicas are summed: the algorithms beside ordered give its bits over two replicas; over more, the same bits from
// run to run, within the bound of ordered's. Law 1: ledgers, staging memory among them, and traffic are as planned.

#include <gtest/gtest.h>

#include "support/world_checks.h"

namespace trireme::testing {
namespace {

using enum ReduceAlgorithm;
constexpr ReduceAlgorithm kOurs[] = {kRing, kRecursiveDoubling, kHierarchical};

// Eight heads, so that tensor ranks divide them.
model::Config eight_heads(model::Config c) {
  c.heads = 8;
  c.kv_heads = c.family == model::Family::kGpt2 ? 8 : 2;
  c.head_dim = 4;
  c.hidden = 32;
  c.ffn = 64;
  return c;
}
const model::Config kModels[] = {eight_heads(tiny_llama(false)), eight_heads(tiny_gpt2(0.1))};

TinyRun run_of(const model::Config& config, plan::Layout layout) {
  return {
      .config = config, .layout = std::move(layout), .batch = {.global_batch = 12, .micro_batch = 1, .sequence = 16}};
}

WorldCurve with(TinyRun run, ReduceAlgorithm algorithm, int steps) {
  run.layout.all_reduce = algorithm;
  const WorldCurve curve = train_world(run, steps);
  const std::string what = plan::describe(run.layout);
  expect_as_planned(curve, what);
  for (const RankReport& rank : curve.ranks) {
    EXPECT_GT(rank.counted.peak(MemoryClass::kCommunicationBuffers).count, 0) << what;
  }
  return curve;
}

TEST(AllReduce, OverTwoReplicasEachAlgorithmHasTheBitsOfOrdered) {
  for (const model::Config& config : kModels) {
    for (const plan::Layout& layout :
         {plan::Layout{.dp = 2}, {.dp = 2, .bucket = 5000}, {.dp = 2, .overlap = false}, {.pp = 2, .dp = 2}}) {
      const TinyRun run = run_of(config, layout);
      const WorldCurve ordered = train_world(run, 3);
      for (const ReduceAlgorithm algorithm : kOurs) {
        const WorldCurve curve = with(run, algorithm, 3);
        EXPECT_EQ(curve.lines, ordered.lines) << plan::describe(layout) << ", " << reduce_algorithm_name(algorithm);
        EXPECT_TRUE(same_weights(curve, ordered)) << plan::describe(layout);
      }
    }
  }
}

TEST(AllReduce, OverMoreReplicasTheyAreStableAndWithinTheBound) {
  for (const model::Config& config : kModels) {
    for (const plan::Layout& layout : {plan::Layout{.dp = 3}, {.dp = 4}, {.tp = 2, .dp = 3}, {.pp = 2, .dp = 3}}) {
      const TinyRun run = run_of(config, layout);
      const WorldCurve ordered = train_world(run, 1);
      for (const ReduceAlgorithm algorithm : kOurs) {
        const std::string what = fmt::format("{}, {}", plan::describe(layout), reduce_algorithm_name(algorithm));
        const WorldCurve curve = with(run, algorithm, 1);
        EXPECT_LT(worst_difference(ordered, curve), 2e-6) << what;
        const WorldCurve again = with(run, algorithm, 1);
        EXPECT_EQ(again.lines, curve.lines) << what;
        EXPECT_TRUE(same_weights(again, curve)) << what;
      }
    }
  }
}

TEST(AllReduce, HierarchicalKnowsWhereTheReplicasAre) {
  for (const std::vector<int>& hosts : std::vector<std::vector<int>>{{0, 0, 1, 1}, {0, 1, 0, 1}, {0, 1, 2, 3}}) {
    TinyRun run = run_of(kModels[0], {.dp = 4});
    run.host_of = hosts;
    const WorldCurve ordered = train_world(run, 1);
    EXPECT_LT(worst_difference(ordered, with(run, kHierarchical, 1)), 2e-6);
  }
  // Tensor ranks of one host, replicas on two.
  TinyRun run = run_of(kModels[0], {.tp = 2, .dp = 2});
  run.host_of = {0, 0, 1, 1};
  EXPECT_EQ(with(run, kHierarchical, 2).lines, train_world(run, 2).lines);
}

// A step with masked targets counts tokens over the replicas too, as the algorithm sums.
TEST(AllReduce, CountedTokensGoTheSameWay) {
  TinyRun run = run_of(kModels[1], {.dp = 3});
  run.ignored = [](std::uint64_t sample, std::int64_t position) { return (sample + position) % 3 == 0; };
  const WorldCurve ordered = train_world(run, 1);
  for (const ReduceAlgorithm algorithm : kOurs) {
    EXPECT_LT(worst_difference(ordered, with(run, algorithm, 1)), 2e-6);
  }
}

}  // namespace
}  // namespace trireme::testing
