// The mean of the loss is over the tokens of the global batch that bear one, also where replicas and micro-batches hold
// very different numbers of them: layouts of several ranks against one rank.

#include <cstdlib>

#include <gtest/gtest.h>

#include "support/world_checks.h"

namespace trireme::testing {
namespace {

constexpr std::uint64_t kBatch = 12;

// Of a step's twelve samples the first four have one counted token each, and one of them none; the others lose every
// fifth, the first and the last of their sequence among them.
bool uneven(std::uint64_t sample, std::int64_t position) {
  const std::uint64_t i = sample % kBatch;
  if (i == 2) return true;
  return i < 4 ? position != 7 : position % 5 == 0;
}

model::Config config_of(bool gpt2) {
  model::Config c = gpt2 ? tiny_gpt2(0.0) : tiny_llama(false);
  c.layers = 4;
  c.heads = c.kv_heads = 4;
  c.head_dim = 8;
  c.hidden = 32;
  c.ffn = 64;
  c.vocabulary = 53;
  return c;
}

TinyRun run_of(const model::Config& config, const plan::Layout& layout = {}) {
  TinyRun run{.config = config,
              .layout = layout,
              .batch = {.global_batch = static_cast<std::int64_t>(kBatch), .micro_batch = 1, .sequence = 16}};
  run.ignored = uneven;
  return run;
}

double loss_of(const WorldCurve& curve) { return std::strtod(curve.lines.front().c_str(), nullptr); }

TEST(MaskedTargets, DataAndTensorRanksAgreeWithOneRank) {
  for (bool gpt2 : {false, true}) {
    const model::Config config = config_of(gpt2);
    const WorldCurve one = train_world(run_of(config), 1);
    for (const plan::Layout& layout : std::vector<plan::Layout>{{.dp = 2},
                                                                {.dp = 3},
                                                                {.dp = 12},
                                                                {.tp = 2},
                                                                {.tp = 4, .sequence_parallel = true},
                                                                {.tp = 2, .dp = 3},
                                                                {.tp = 2, .pp = 2, .dp = 2}}) {
      const WorldCurve curve = train_world(run_of(config, layout), 1);
      EXPECT_LT(worst_difference(one, curve), 2e-6) << plan::describe(layout);
      EXPECT_NEAR(loss_of(curve), loss_of(one), 2e-6 * loss_of(one)) << plan::describe(layout);
      expect_as_planned(curve, plan::describe(layout));
    }
  }
}

// Accumulation: micro-batches of one sequence or of several, of one rank and of two.
TEST(MaskedTargets, MicroBatchesOfOtherSizesAgree) {
  const model::Config config = config_of(false);
  const WorldCurve one = train_world(run_of(config), 1);
  for (int dp : {1, 2}) {
    for (std::int64_t micro_batch : {2, 3, 6}) {
      TinyRun run = run_of(config, {.dp = dp});
      run.batch.micro_batch = micro_batch;
      const WorldCurve curve = train_world(run, 1);
      EXPECT_LT(worst_difference(one, curve), 2e-6) << "dp " << dp << ", micro-batch " << micro_batch;
      expect_as_planned(curve, "accumulation");
    }
  }
}

TEST(MaskedTargets, PipelinesKeepEveryBit) {
  const model::Config config = config_of(true);
  const WorldCurve one = train_world(run_of(config), 3);
  for (auto schedule : {plan::ScheduleKind::kGpipe, plan::ScheduleKind::kOneFOneB, plan::ScheduleKind::kZeroBubbleH1}) {
    const WorldCurve curve = train_world(run_of(config, {.pp = 2, .schedule = schedule}), 3);
    EXPECT_EQ(curve.lines, one.lines) << plan::schedule_name(schedule);
    EXPECT_TRUE(same_weights(curve, one)) << plan::schedule_name(schedule);
    expect_as_planned(curve, "pipeline");
  }
}

// The means of two replicas, averaged, are another loss and another gradient: what the other tests would let through if
// the counts were alike.
TEST(MaskedTargets, TheAverageOfReplicasMeansIsAnotherLoss) {
  const model::Config config = config_of(false);
  const WorldCurve one = train_world(run_of(config), 1);
  std::vector<WorldCurve> replicas;
  std::vector<double> counts;
  for (std::uint64_t replica : {0, 1}) {
    TinyRun run = run_of(config);
    run.ignored = [replica](std::uint64_t sample, std::int64_t position) {
      return sample % kBatch / (kBatch / 2) != replica || uneven(sample, position);
    };
    counts.push_back(0);
    for (std::uint64_t sample = 0; sample < kBatch; ++sample) {
      for (std::int64_t position = 0; position < run.batch.sequence; ++position) {
        counts.back() += run.ignored(sample, position) ? 0 : 1;
      }
    }
    replicas.push_back(train_world(run, 1));
  }
  EXPECT_LT(counts[0], counts[1] / 2);
  const double a = loss_of(replicas[0]), b = loss_of(replicas[1]);
  EXPECT_NEAR((counts[0] * a + counts[1] * b) / (counts[0] + counts[1]), loss_of(one), 1e-6);
  EXPECT_GT(std::abs((a + b) / 2 - loss_of(one)), 1e-3);
  WorldCurve average = replicas[0];
  for (auto& [name, tensor] : average.tensors) {
    const std::vector<double>& other = replicas[1].tensors.at(name).gradient;
    for (std::size_t i = 0; i < other.size(); ++i) tensor.gradient[i] = (tensor.gradient[i] + other[i]) / 2;
  }
  EXPECT_GT(worst_difference(one, average), 0.1);
}

TEST(MaskedTargets, AStepWithoutACountedTokenIsRefused) {
  for (const plan::Layout& layout : std::vector<plan::Layout>{{}, {.dp = 2}, {.tp = 2, .pp = 2}}) {
    TinyRun run = run_of(config_of(false), layout);
    run.ignored = [](std::uint64_t sample, std::int64_t position) {
      return sample >= kBatch || uneven(sample, position);
    };
    try {
      train_world(run, 2);
      ADD_FAILURE() << plan::describe(layout) << ": no refusal";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kUsage) << error.what();
      EXPECT_NE(std::string(error.what()).find("step 2: no token of the global batch bears a loss"), std::string::npos)
          << error.what();
    }
  }
}

}  // namespace
}  // namespace trireme::testing
