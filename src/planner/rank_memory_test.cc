#include "planner/rank_memory.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "model/test_configs.h"
#include "plan/test_random_layouts.h"
#include "planner/evaluator.h"
#include "planner/test_problems.h"

namespace trireme::planner {
namespace {

using model::Recompute;

constexpr double kGiB = 1024.0 * 1024 * 1024;

// Korthikanti et al. 2022: GPT of 2,048 tokens at t = 8, attention unfused, dropout everywhere.
struct Published {
  std::int64_t layers, hidden, heads, micro_batch;
  double none, tensor, sequence, selective, sequence_selective, full;  // GiB a layer and micro-batch
  double first_stage;  // all layers' worth under 1F1B with sequence parallelism and selective recompute
};
constexpr Published kPublished[] = {
    {48, 6144, 64, 4, 6.594, 1.234, 0.824, 0.609, 0.199, 0.094, 9.56},
    {96, 12288, 96, 1, 2.672, 0.539, 0.334, 0.305, 0.100, 0.047, 9.56},
    {105, 20480, 128, 1, 3.828, 0.820, 0.479, 0.508, 0.166, 0.078, 17.43},
    {128, 25600, 160, 1, 4.785, 1.025, 0.598, 0.635, 0.208, 0.098, 26.56},
};

TEST(MegatronLayer, PublishedTable) {
  for (const Published& row : kPublished) {
    const ModelUnits units(gpt(row.layers, row.hidden, row.heads));
    const ModelUnits::Unit& unit = units.layers().front();
    const auto layer = [&](int tp, bool sequence_parallel, Recompute recompute) {
      return megatron_layer_bytes(unit, row.micro_batch, 2048, tp, sequence_parallel, recompute, false, true) / kGiB;
    };
    constexpr double kPrinted = 0.0005001;  // half of the last digit
    EXPECT_NEAR(layer(1, false, Recompute::kNone), row.none, kPrinted) << row.hidden;
    EXPECT_NEAR(layer(8, false, Recompute::kNone), row.tensor, kPrinted) << row.hidden;
    EXPECT_NEAR(layer(8, true, Recompute::kNone), row.sequence, kPrinted) << row.hidden;
    EXPECT_NEAR(layer(8, false, Recompute::kSelective), row.selective, kPrinted) << row.hidden;
    EXPECT_NEAR(layer(8, true, Recompute::kSelective), row.sequence_selective, kPrinted) << row.hidden;
    EXPECT_NEAR(layer(1, false, Recompute::kFull), 8 * layer(8, true, Recompute::kFull), 1e-12) << row.hidden;
    EXPECT_NEAR(layer(8, false, Recompute::kFull), row.full, kPrinted) << row.hidden;
    EXPECT_NEAR(static_cast<double>(row.layers) * layer(8, true, Recompute::kSelective), row.first_stage, 0.005001)
        << row.hidden;
  }
}

TEST(MegatronLayer, FusedAttentionKeepsNoScores) {
  const ModelUnits units(gpt(96, 12288, 96));
  const ModelUnits::Unit& unit = units.layers().front();
  const double sbh = 2048.0 * 12288, sa = 2048.0 * 96;
  EXPECT_DOUBLE_EQ(megatron_layer_bytes(unit, 1, 2048, 1, false, Recompute::kNone, true, true), 34 * sbh + 4 * sa);
  EXPECT_DOUBLE_EQ(megatron_layer_bytes(unit, 1, 2048, 1, false, Recompute::kNone, true, false), 32 * sbh + 4 * sa);
  EXPECT_DOUBLE_EQ(megatron_layer_bytes(unit, 1, 2048, 1, false, Recompute::kNone, false, false),
                   32 * sbh + 2 * sa * 2048);
}

// The framework whose every byte is booked: nothing beside the ledger.
Problem booked(const model::Config& config, const std::string& cluster, std::int64_t global_batch,
               std::int64_t sequence, DType compute) {
  Problem problem = problem_of(config, cluster, global_batch, sequence, "trireme", compute);
  problem.framework.context = {};
  problem.framework.fragmentation = 0;
  problem.framework.vocabulary_multiple = 1;
  return problem;
}

// Worst rank of the walk over the program: every stage, first and last tensor rank.
Ledger worst_walk(const Problem& problem, const Choice& choice) {
  const model::ParameterTable table = model::make_parameter_table(problem.config);
  const plan::Layout layout = choice.layout();
  Ledger worst;
  for (int stage = 0; stage < choice.pp; ++stage) {
    for (int tensor = 0; tensor < choice.tp; tensor += std::max(1, choice.tp - 1)) {
      const Ledger ledger = plan::predict_memory(table, layout, problem.batch(choice.micro_batch), problem.inputs,
                                                 plan::rank_of(layout, {.tp = tensor, .pp = stage, .dp = 0}));
      if (ledger.peak_sum() > worst.peak_sum()) worst = ledger;
    }
  }
  return worst;
}
double bytes(Bytes value) { return static_cast<double>(value.count); }

void expect_equal(const Problem& problem, const Choice& choice) {
  const Ledger walk = worst_walk(problem, choice);
  const MemoryEstimate closed = Evaluator(problem).estimate(choice).memory.front();
  const std::string what = describe(choice) + " of " + model::family_name(problem.config.family);
  EXPECT_EQ(closed.ledger, bytes(walk.peak_sum())) << what;
  EXPECT_EQ(closed.total(), closed.ledger) << what;
  for (int c = 0; c < kMemoryClassCount; ++c) {
    const auto memory_class = static_cast<MemoryClass>(c);
    EXPECT_EQ(closed[memory_class], bytes(walk.at_peak(memory_class))) << memory_class_name(memory_class) << what;
  }
}

TEST(StageMemory, OneRankToTheByte) {
  model::Config dropout = model::small_gpt2();
  dropout.residual_dropout = 0.1;
  for (const model::Config& config : {model::small_gpt2(), model::small_llama(), dropout, example_model("gpt2")}) {
    for (Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
      for (DType compute : {DType::kF32, DType::kBF16}) {
        for (std::int64_t micro_batches : {1, 2, 5}) {
          for (std::int64_t micro_batch : {1, 3}) {
            const Problem problem = booked(config, "h100:1", micro_batch * micro_batches, 32, compute);
            expect_equal(problem, {.micro_batch = micro_batch, .recompute = recompute});
          }
        }
      }
    }
  }
}

struct Difference {
  int cases = 0;
  int equal = 0;
  double below = 0;  // worst, relative
  double above = 0;

  void add(const Problem& problem, const Choice& choice) {
    const double walk = bytes(worst_walk(problem, choice).peak_sum());
    const Estimate estimate = Evaluator(problem).estimate(choice);
    const double relative = estimate.worst().ledger / walk - 1;
    ++cases;
    equal += relative == 0;
    below = std::max(below, -relative);
    above = std::max(above, relative);
    EXPECT_NEAR(relative, 0.0, 0.02) << describe(choice);
  }
};

// What is left: activations that arrive early and boundaries under the interleaved schedule, and weights that ZeRO 3
// gathers ahead across units of different size.
TEST(StageMemory, RandomLayoutsOfSmallModels) {
  Difference difference;
  for (plan::RandomLayout& r : plan::random_layouts(1000, 5)) {
    r.layout.chunk_layers.clear();  // the planner cuts stages itself
    const DType compute = difference.cases % 2 == 0 ? DType::kF32 : DType::kBF16;
    const Problem problem = booked(r.config, "h100:64", r.batch.global_batch, r.batch.sequence, compute);
    difference.add(problem, choice_of(r.layout, r.batch.micro_batch));
  }
  EXPECT_GE(difference.equal, 990);
  EXPECT_LT(difference.below, 0.01);
  EXPECT_LT(difference.above, 0.01);
}

TEST(StageMemory, RandomLayoutsOfRealModels) {
  Dice dice(7);
  Difference difference;
  while (difference.cases < 1000) {
    const std::string name = dice.one_of(example_models());
    if (name == "llama-3.1-405b") continue;
    const model::Config config = example_model(name);
    const int world = dice.one_of<int>({1, 8, 16, 64, 128, 256});
    const Problem problem = booked(config, "h100:" + std::to_string(world), world * dice.one_of<int>({1, 2, 4}),
                                   std::min(config.max_positions, dice.one_of<std::int64_t>({1024, 2048, 4096})),
                                   dice.coin() ? DType::kBF16 : DType::kF32);
    const Choice choice = random_choice(problem, dice);
    if (problem.global_batch / choice.dp / choice.micro_batch <= 64) difference.add(problem, choice);
  }
  EXPECT_GE(difference.equal, 985);
  EXPECT_LT(difference.below, 0.02);
  EXPECT_LT(difference.above, 0.001);
}

// Chunks of different size: what is in flight, counted one by one.
TEST(InterleavedLayers, IsTheMostOverTheSchedule) {
  Dice dice(9);
  for (int i = 0; i < 300; ++i) {
    const int pp = dice.upto(6) + 1, v = dice.upto(5) + 1, rounds = dice.upto(5), stage = dice.upto(pp) - 1;
    std::vector<int> layers;
    for (int c = 0; c < v; ++c) layers.push_back(dice.upto(4));
    int held = 0, most = 0;
    const plan::Schedule schedule = plan::make_schedule(plan::ScheduleKind::kInterleaved, pp, v, rounds * pp);
    for (const plan::ChunkAction& action : schedule[static_cast<std::size_t>(stage)]) {
      const int count = layers[static_cast<std::size_t>(action.chunk)];
      if (action.kind == plan::ActionKind::kForward) held += count;
      most = std::max(most, held);
      if (action.kind == plan::ActionKind::kBackward) held -= count;
    }
    EXPECT_EQ(interleaved_layers(pp, rounds * pp, stage, layers), most) << pp << " " << v << " " << rounds;
    const int from_third = std::min(rounds, 3);
    EXPECT_EQ(interleaved_layers(pp, from_third * pp, stage, layers), most) << pp << " " << v << " " << rounds;
  }
}

TEST(PaddedVocabulary, CountsInTheState) {
  const model::Config config = example_model("gpt2");
  Problem problem = booked(config, "h100:8", 8, 1024, DType::kBF16);
  const std::int64_t before = unit_elements(problem, 2).embedding;
  problem.framework.vocabulary_multiple = 128;
  const std::int64_t padded = (50257 + 255) / 256 * 256;
  EXPECT_EQ(unit_elements(problem, 2).embedding - before, (padded / 2 - (50257 + 1) / 2) * 768);
}

}  // namespace
}  // namespace trireme::planner
