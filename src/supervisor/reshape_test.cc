#include "supervisor/reshape.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

#include <gtest/gtest.h>

#include "model/parameters.h"
#include "plan/tensor_flow.h"
#include "plan/test_random_layouts.h"
#include "planner/evaluator.h"
#include "supervisor/test_dice.h"

namespace trireme::supervisor {
namespace {

using plan::Layout;
using plan::ScheduleKind;

model::Config tiny_llama() {
  model::Config config{.layers = 4, .hidden = 64, .heads = 8, .kv_heads = 2, .head_dim = 8, .ffn = 192};
  config.vocabulary = 259;
  config.max_positions = 128;
  return config;
}

ReshapeProblem tiny_problem(std::int64_t global_batch = 24) {
  return {.model = tiny_llama(),
          .batch = {.global_batch = global_batch, .micro_batch = 1, .sequence = 64},
          .layout = {.tp = 2, .dp = 4}};
}

std::vector<Host> hosts_of(const std::vector<int>& slots) {
  std::vector<Host> hosts;
  for (std::size_t i = 0; i < slots.size(); ++i) hosts.push_back({"h" + std::to_string(i), slots[i]});
  return hosts;
}

int slots_of(const std::vector<Host>& hosts) {
  return std::accumulate(hosts.begin(), hosts.end(), 0,
                         [](int sum, const Host& host) { return sum + (host.spare ? 0 : host.slots); });
}

Bytes most_memory(const ReshapeProblem& problem, const Layout& layout) {
  const model::ParameterTable table = model::make_parameter_table(problem.model);
  Bytes most;
  for (int rank = 0; rank < layout.world(); ++rank) {
    most = std::max(most, plan::predict_memory(table, layout, problem.batch, problem.inputs, rank).peak_sum());
  }
  return most;
}

// What holds of every choice, whatever the problem.
void check_choice(const ReshapeProblem& problem, const std::vector<Host>& hosts, const ReshapeChoice& choice) {
  const Layout& layout = choice.layout;
  const Status legal = plan::check_layout(problem.model, layout, problem.batch);
  ASSERT_TRUE(legal.ok()) << legal.failure().sentence();
  const Status flow = plan::check_tensor_flow(model::make_parameter_table(problem.model), layout);
  ASSERT_TRUE(flow.ok()) << flow.failure().sentence();
  ASSERT_EQ(problem.batch.global_batch % (problem.batch.micro_batch * layout.dp), 0);
  ASSERT_LE(layout.world(), slots_of(hosts));
  ASSERT_EQ(choice.placement.ranks(), layout.world());
  ASSERT_GT(choice.predicted_step_s, 0);
  // Hosts in their order, none beyond its slots, no spare.
  std::size_t next = 0;
  for (const Host& placed : choice.placement.hosts) {
    while (next < hosts.size() && hosts[next].name != placed.name) ++next;
    ASSERT_LT(next, hosts.size());
    ASSERT_LE(placed.slots, hosts[next].slots);
    ASSERT_FALSE(hosts[next].spare);
  }
  if (!problem.allow_slow_tp) {
    for (const std::vector<int>& group : plan::process_groups(layout, plan::Axis::kTensor)) {
      for (int rank : group) ASSERT_EQ(choice.placement.host_of(rank), choice.placement.host_of(group.front()));
    }
  }
  if (problem.memory_limit.count > 0 && layout != problem.layout) {
    ASSERT_LE(most_memory(problem, layout), problem.memory_limit);
  }
  // What is not free stays.
  const Layout& asked = problem.layout;
  EXPECT_EQ(layout.order, asked.order);
  EXPECT_EQ(layout.prefetch, asked.prefetch);
  EXPECT_EQ(layout.overlap, asked.overlap);
  EXPECT_GE(layout.zero, asked.zero);
  EXPECT_GE(layout.recompute, asked.recompute);
  if (problem.memory_limit.count == 0 && !problem.cluster) {
    EXPECT_EQ(layout.zero, asked.zero);
    EXPECT_EQ(layout.recompute, asked.recompute);
    EXPECT_EQ(layout.reduce, asked.reduce);
    EXPECT_EQ(layout.bucket, asked.bucket);
    EXPECT_TRUE(layout.dp == 1 || layout.all_reduce == asked.all_reduce);
  }
}

bool same(const ReshapeChoice& a, const ReshapeChoice& b) {
  return a.layout == b.layout && a.placement == b.placement && a.predicted_step_s == b.predicted_step_s;
}

TEST(Reshape, AsAskedWhereItsSlotsAreThere) {
  ReshapeProblem problem = tiny_problem();
  problem.layout.zero = 2;
  problem.layout.reduce = plan::ReduceWhen::kMicrobatch;
  problem.layout.prefetch = 3;
  const std::optional<ReshapeChoice> choice = choose_layout(problem, hosts_of({2, 2, 2, 2, 2}));
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->layout, problem.layout);
  EXPECT_EQ(choice->placement.text(), "h0:2 h1:2 h2:2 h3:2");
  EXPECT_GT(choice->predicted_step_s, 0);
}

TEST(Reshape, AHostLess) {
  ReshapeProblem problem = tiny_problem();
  const std::vector<Host> hosts = hosts_of({2, 2, 2});
  const std::optional<ReshapeChoice> choice = choose_layout(problem, hosts);
  ASSERT_TRUE(choice);
  check_choice(problem, hosts, *choice);
  EXPECT_EQ(choice->layout.world(), 6) << plan::describe(choice->layout);
}

// Against every layout of up to as many ranks, by nothing but check_layout.
TEST(Reshape, NoLayoutIsFaster) {
  for (ScheduleKind schedule : {ScheduleKind::kOneFOneB, ScheduleKind::kGpipe, ScheduleKind::kInterleaved}) {
    for (int slots = 1; slots <= 9; ++slots) {
      ReshapeProblem problem = tiny_problem();
      problem.batch.global_batch = slots % 3 == 0 ? 4 : 24;
      problem.cluster = cluster::load_cluster(posix_env(), "h100").or_throw();
      problem.layout = {.tp = 2, .pp = 2, .dp = 4, .schedule = schedule};
      const std::optional<ReshapeChoice> choice = choose_layout(problem, hosts_of({slots}));
      ASSERT_TRUE(choice);
      double least = std::numeric_limits<double>::infinity();
      Layout layout = problem.layout;
      for (layout.tp = 1; layout.tp <= slots; ++layout.tp) {
        for (layout.pp = 1; layout.pp * layout.tp <= slots; ++layout.pp) {
          for (layout.dp = 1; layout.world() <= slots; ++layout.dp) {
            for (layout.interleave = 1; layout.interleave <= 4; ++layout.interleave) {
              const bool single = schedule == ScheduleKind::kInterleaved && layout.interleave == 1;
              layout.schedule = single ? ScheduleKind::kOneFOneB : schedule;
              if (!plan::check_layout(problem.model, layout, problem.batch).ok()) continue;
              cluster::Cluster host = *problem.cluster;
              host.devices_per_host = host.cards_per_host = layout.world();
              planner::Evaluator evaluator(planner::make_problem(problem.model, host, problem.batch.global_batch,
                                                                 problem.batch.sequence, DType::kF32,
                                                                 planner::default_calibration(), "trireme")
                                               .or_throw());
              least = std::min(least, evaluator.simulate(planner::choice_of(layout, problem.batch.micro_batch)));
            }
          }
        }
      }
      EXPECT_EQ(choice->predicted_step_s, least) << slots << ", " << plan::describe(choice->layout);
    }
  }
}

// 16 micro-batches: three replicas or six cannot share them.
TEST(Reshape, ABatchThatTheRanksDoNotDivide) {
  ReshapeProblem problem = tiny_problem(16);
  const std::vector<Host> hosts = hosts_of({2, 2, 2});
  const std::optional<ReshapeChoice> choice = choose_layout(problem, hosts);
  ASSERT_TRUE(choice);
  check_choice(problem, hosts, *choice);
  EXPECT_EQ(16 % choice->layout.dp, 0);
}

TEST(Reshape, OneSlotAndNone) {
  ReshapeProblem problem = tiny_problem();
  problem.layout.sequence_parallel = true;
  problem.layout.all_reduce = ReduceAlgorithm::kRing;
  const std::optional<ReshapeChoice> choice = choose_layout(problem, hosts_of({1}));
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->layout, Layout{});
  EXPECT_EQ(choice->placement.text(), "h0:1");
  EXPECT_FALSE(choose_layout(problem, {}));
  EXPECT_FALSE(choose_layout(problem, {{.name = "spare", .slots = 8, .spare = true}}));
}

TEST(Reshape, NothingIsLegal) {
  ReshapeProblem problem = tiny_problem();
  problem.batch.sequence = 1000;  // beyond the positions
  EXPECT_FALSE(choose_layout(problem, hosts_of({2, 2})));
  problem = tiny_problem();
  problem.batch.micro_batch = 5;
  EXPECT_FALSE(choose_layout(problem, hosts_of({2, 2})));
  problem.batch.micro_batch = 0;
  EXPECT_FALSE(choose_layout(problem, hosts_of({2, 2})));
  problem = tiny_problem();
  problem.memory_limit = {1000};
  EXPECT_FALSE(choose_layout(problem, hosts_of({2, 2})));
}

TEST(Reshape, SparesAreNotCounted) {
  const ReshapeProblem problem = tiny_problem();
  std::vector<Host> hosts = hosts_of({2, 2, 2, 2});
  hosts[1].spare = true;
  const std::optional<ReshapeChoice> choice = choose_layout(problem, hosts);
  ASSERT_TRUE(choice);
  check_choice(problem, hosts, *choice);
  EXPECT_LE(choice->layout.world(), 6);
}

// Tensor groups of two on hosts of three: a slot of each is left.
TEST(Reshape, TensorGroupsStayOnAHost) {
  ReshapeProblem problem = tiny_problem();
  problem.layout = {.tp = 2, .dp = 2};
  const std::optional<ReshapeChoice> choice = choose_layout(problem, hosts_of({3, 3}));
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->layout, problem.layout);
  EXPECT_EQ(choice->placement.text(), "h0:2 h1:2");
  problem.layout.dp = 3;
  problem.allow_slow_tp = true;
  const std::optional<ReshapeChoice> slow = choose_layout(problem, hosts_of({3, 3}));
  ASSERT_TRUE(slow);
  EXPECT_EQ(slow->layout, problem.layout);
  EXPECT_EQ(slow->placement.text(), "h0:3 h1:3");
  problem.layout = {.tp = 4};
  const std::optional<ReshapeChoice> alone = choose_layout(problem, hosts_of({1, 1, 1, 1}));
  ASSERT_TRUE(alone);
  EXPECT_EQ(alone->placement.text(), "h0:1 h1:1 h2:1 h3:1");
  problem.allow_slow_tp = false;
  const std::optional<ReshapeChoice> without = choose_layout(problem, hosts_of({1, 1, 1, 1}));
  ASSERT_TRUE(without);
  EXPECT_EQ(without->layout.tp, 1);
}

ReshapeProblem gpt2_problem() {
  return {.model = model::load_config(posix_env(), "examples/models/gpt2").or_throw(),
          .batch = {.global_batch = 512, .micro_batch = 4, .sequence = 1024},
          .layout = {.tp = 4, .pp = 2, .dp = 16}};
}

TEST(Reshape, MoreIsShardedWhereNothingElseFits) {
  ReshapeProblem problem = gpt2_problem();
  const std::vector<Host> hosts = hosts_of({8, 8, 8, 8, 8, 8, 8, 8});
  std::set<int> stages;
  for (std::int64_t megabytes : {2000, 1000, 800, 600, 500}) {
    problem.memory_limit = {megabytes * 1'000'000};
    const std::optional<ReshapeChoice> choice = choose_layout(problem, hosts);
    ASSERT_TRUE(choice) << megabytes;
    check_choice(problem, hosts, *choice);
    stages.insert(choice->layout.zero);
    EXPECT_EQ(choice->layout.zero == 0, megabytes >= 1000) << megabytes;
    if (choice->layout.zero != 3) continue;
    Layout less = choice->layout;
    less.zero = 2;
    EXPECT_GT(most_memory(problem, less), problem.memory_limit) << megabytes;
  }
  EXPECT_TRUE(stages.contains(3));
  problem.memory_limit = {100'000'000};
  EXPECT_FALSE(choose_layout(problem, hosts));
}

// A device of the cluster's memory is the limit where none is given.
TEST(Reshape, TheClustersMemory) {
  ReshapeProblem problem = gpt2_problem();
  const std::vector<Host> hosts = hosts_of({8, 8, 8, 8, 8, 8, 8, 8});
  problem.cluster = cluster::load_cluster(posix_env(), "h100").or_throw();
  problem.cluster->device.memory = {600'000'000};
  const std::optional<ReshapeChoice> choice = choose_layout(problem, hosts);
  ASSERT_TRUE(choice);
  EXPECT_LE(most_memory(problem, choice->layout), problem.cluster->device.memory);
  problem.memory_limit = {2'000'000'000};
  const std::optional<ReshapeChoice> more = choose_layout(problem, hosts);
  ASSERT_TRUE(more);
  EXPECT_LT(more->predicted_step_s, choice->predicted_step_s);
}

TEST(Reshape, StagesUpToTheLayers) {
  ReshapeProblem problem = tiny_problem(1);  // no replicas
  problem.model.heads = problem.model.kv_heads = 1;
  problem.model.layers = 1;
  problem.layout = {.pp = 1};
  for (int slots : {1, 3, 5, 7}) {
    const std::optional<ReshapeChoice> choice = choose_layout(problem, hosts_of({slots}));
    ASSERT_TRUE(choice);
    EXPECT_EQ(choice->layout, Layout{});
  }
  problem.model.layers = 3;
  problem.layout = {.pp = 8};  // as nobody can have asked for: 3 layers
  const std::optional<ReshapeChoice> choice = choose_layout(problem, hosts_of({8}));
  ASSERT_TRUE(choice);
  EXPECT_LE(choice->layout.pp, 3);
}

TEST(Reshape, WhatTheDegreesMakeIllegalIsLeftOut) {
  ReshapeProblem problem = tiny_problem();
  problem.layout = {.tp = 1, .pp = 4, .dp = 2};
  problem.layout.chunk_layers = {1, 1, 1, 1};
  problem.layout.all_reduce = ReduceAlgorithm::kHierarchical;
  problem.layout.bucket = 1000;
  for (int slots = 1; slots < 8; ++slots) {
    const std::vector<Host> hosts = hosts_of({slots});
    const std::optional<ReshapeChoice> choice = choose_layout(problem, hosts);
    ASSERT_TRUE(choice) << slots;
    check_choice(problem, hosts, *choice);
    EXPECT_EQ(choice->layout.chunk_layers.empty(), choice->layout.chunks() != 4);
  }
}

TEST(Reshape, InterleavedStaysInterleavedOrGoesOneByOne) {
  ReshapeProblem problem = tiny_problem();
  problem.layout = {.pp = 2, .dp = 4, .interleave = 2, .schedule = ScheduleKind::kInterleaved};
  for (int slots = 1; slots < 8; ++slots) {
    const std::vector<Host> hosts = hosts_of({slots});
    const std::optional<ReshapeChoice> choice = choose_layout(problem, hosts);
    ASSERT_TRUE(choice) << slots;
    check_choice(problem, hosts, *choice);
    EXPECT_EQ(choice->layout.schedule,
              choice->layout.interleave > 1 ? ScheduleKind::kInterleaved : ScheduleKind::kOneFOneB);
  }
}

// A rate for 16 bits alone, one host without a link to others: figures that rank layouts take their place.
TEST(Reshape, AClusterWithGaps) {
  ReshapeProblem problem = tiny_problem();
  problem.cluster = cluster::load_cluster(posix_env(), "h100:8").or_throw();
  problem.cluster->device.fp32_flops_per_s = 0;
  problem.cluster->between = {};
  const std::vector<Host> hosts = hosts_of({2, 2, 2});
  const std::optional<ReshapeChoice> choice = choose_layout(problem, hosts);
  ASSERT_TRUE(choice);
  check_choice(problem, hosts, *choice);
}

TEST(Reshape, OddSizesOfEverything) {
  for (int layers : {1, 3, 5, 7}) {
    for (int heads : {1, 3, 5, 7}) {
      for (int batch : {1, 3, 5, 7}) {
        for (int slots : {1, 3, 5, 7}) {
          ReshapeProblem problem = tiny_problem(batch);
          problem.model.layers = layers;
          problem.model.heads = problem.model.kv_heads = heads;
          problem.model.hidden = 8 * heads;
          problem.model.ffn = 15 * heads;
          problem.model.vocabulary = 257;
          problem.batch.sequence = 7;
          problem.layout = {.dp = 9};
          const std::vector<Host> hosts = hosts_of({slots, 1});
          const std::optional<ReshapeChoice> choice = choose_layout(problem, hosts);
          ASSERT_TRUE(choice);
          check_choice(problem, hosts, *choice);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(Reshape, RandomProblems) {
  Dice dice(3);
  int found = 0, as_asked = 0;
  for (const plan::RandomLayout& random : plan::random_layouts(1000, 5)) {
    ReshapeProblem problem{.model = random.config, .batch = random.batch, .layout = random.layout};
    problem.allow_slow_tp = dice.upto(4) == 1;
    if (dice.upto(3) == 1) problem.memory_limit = {std::int64_t{20'000} << dice.upto(8)};
    std::vector<Host> hosts;
    const int count = dice.upto(5);
    const int slots = dice.upto(8);
    for (int i = 0; i < count; ++i) {
      hosts.push_back({"h" + std::to_string(i), dice.coin() ? slots : dice.upto(8), dice.upto(8) == 1});
    }
    const std::optional<ReshapeChoice> choice = choose_layout(problem, hosts);
    const std::optional<ReshapeChoice> again = choose_layout(problem, hosts);
    ASSERT_EQ(choice.has_value(), again.has_value());
    if (!choice) {
      ASSERT_TRUE(slots_of(hosts) == 0 || problem.memory_limit.count > 0);
      continue;
    }
    ++found;
    as_asked += choice->layout == problem.layout ? 1 : 0;
    ASSERT_TRUE(same(*choice, *again)) << plan::describe(choice->layout) << " / " << plan::describe(again->layout);
    check_choice(problem, hosts, *choice);
    if (HasFatalFailure()) FAIL() << plan::describe(problem.layout) << " -> " << plan::describe(choice->layout);
  }
  EXPECT_GT(found, 800);
  EXPECT_GT(as_asked, 100);
}

// Bounds with room for a busy machine.
TEST(Reshape, IsQuick) {
  const Seconds start = posix_env().now();
  choose_layout(tiny_problem(), hosts_of({2, 2, 2}));
  const double tiny = posix_env().now().count - start.count;
  RecordProperty("tiny_ms", std::to_string(tiny * 1e3));
  EXPECT_LT(tiny, 0.5);
  const ReshapeProblem problem = gpt2_problem();
  const Seconds large_start = posix_env().now();
  const std::optional<ReshapeChoice> choice = choose_layout(problem, hosts_of({8, 8, 8, 8, 8, 8, 8, 8}));
  const double large = posix_env().now().count - large_start.count;
  RecordProperty("gpt2_ms", std::to_string(large * 1e3));
  ASSERT_TRUE(choice);
  EXPECT_LT(large, 10);
}

}  // namespace
}  // namespace trireme::supervisor
