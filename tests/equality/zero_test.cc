// Law 2 under ZeRO: at one setting of `reduce`, stages 0 to 3 give the same losses, norms and weights, bit for bit.
// Law 1 beside it: every rank's ledger and the bytes that it sent are what the plan said.

#include <gtest/gtest.h>

#include "support/tiny_world.h"
#include "support/verify_run.h"
#include "support/world_checks.h"

namespace trireme::testing {
namespace {

using plan::ReduceWhen;

struct Case {
  const char* name;
  int dp, tp, pp;
  std::int64_t accumulation;
  plan::ScheduleKind schedule = plan::ScheduleKind::kOneFOneB;
  model::Recompute recompute = model::Recompute::kNone;
  bool sequence_parallel = false;
};

TinyRun run_of(const model::Config& config, const Case& c, int zero, ReduceWhen reduce) {
  TinyRun run{.config = config};
  run.config.layers = 4;
  run.config.heads = 4;
  run.config.kv_heads = config.family == model::Family::kLlama ? 2 : 4;
  run.config.head_dim = 8;
  run.config.hidden = 32;
  run.config.ffn = 48;
  run.batch = {.global_batch = c.dp * c.accumulation * 2, .micro_batch = 2, .sequence = 16};
  run.layout = {.tp = c.tp,
                .pp = c.pp,
                .dp = c.dp,
                .schedule = c.schedule,
                .zero = zero,
                .recompute = c.recompute,
                .sequence_parallel = c.sequence_parallel,
                .reduce = reduce};
  if (c.schedule == plan::ScheduleKind::kInterleaved) run.layout.interleave = 2;
  return run;
}

struct Precision {
  DType compute = DType::kF32;
  bool fp32_gradients = false;
  std::optional<double> loss_scale = std::nullopt;
};

void expect_equal_stages(const model::Config& config, const Case& c, int steps, const Precision& precision = {}) {
  const auto train = [&](int zero, ReduceWhen reduce) {
    TinyRun run = run_of(config, c, zero, reduce);
    run.compute = precision.compute;
    run.fp32_gradients = precision.fp32_gradients;
    run.loss_scale = precision.loss_scale;
    return train_world(run, steps);
  };
  for (ReduceWhen reduce : {ReduceWhen::kStep, ReduceWhen::kMicrobatch}) {
    const WorldCurve plain = train(0, reduce);
    expect_as_planned(plain, c.name);
    for (int zero : {1, 2, 3}) {
      const std::string what = fmt::format("{}, zero {}, reduce {}", c.name, zero, plan::reduce_name(reduce));
      SCOPED_TRACE(what);
      const WorldCurve curve = train(zero, reduce);
      EXPECT_EQ(curve.lines, plain.lines);
      EXPECT_TRUE(same_weights(curve, plain));
      expect_as_planned(curve, what);
    }
  }
}

const Case kCases[] = {
    {"dp 2", 2, 1, 1, 1},
    {"dp 2, accumulation 4", 2, 1, 1, 4},
    {"dp 3", 3, 1, 1, 1},
    {"dp 4", 4, 1, 1, 1},
    {"dp 5, accumulation 4", 5, 1, 1, 4},
    {"dp 8", 8, 1, 1, 1},
    {"dp 2, tp 2", 2, 2, 1, 1},
    {"dp 2, tp 2, accumulation 4", 2, 2, 1, 4},
    {"dp 2, tp 4", 2, 4, 1, 1},
    {"dp 4, tp 2", 4, 2, 1, 1},
    {"dp 2, tp 2, sequence parallel", 2, 2, 1, 1, plan::ScheduleKind::kOneFOneB, model::Recompute::kNone, true},
    {"dp 2, pp 2", 2, 1, 2, 1},
    {"dp 2, pp 2, accumulation 4", 2, 1, 2, 4},
    {"dp 2, pp 2, gpipe", 2, 1, 2, 4, plan::ScheduleKind::kGpipe},
    {"dp 2, pp 2, zb-h1", 2, 1, 2, 4, plan::ScheduleKind::kZeroBubbleH1},
    {"dp 2, pp 2, interleaved", 2, 1, 2, 4, plan::ScheduleKind::kInterleaved},
    {"dp 4, pp 2", 4, 1, 2, 1},
    {"dp 2, tp 2, pp 2", 2, 2, 2, 4},
    {"dp 3, recompute full", 3, 1, 1, 4, plan::ScheduleKind::kOneFOneB, model::Recompute::kFull},
    {"dp 2, pp 2, recompute selective", 2, 1, 2, 4, plan::ScheduleKind::kOneFOneB, model::Recompute::kSelective},
};

TEST(Zero, AllStagesComputeTheSameBits) {
  for (const Case& c : kCases) expect_equal_stages(tiny_llama(false), c, 3);
}

TEST(Zero, TiedEmbeddingsAndDropout) {
  for (const Case& c : {kCases[1], kCases[4], kCases[7], kCases[12], kCases[14], kCases[17]}) {
    expect_equal_stages(tiny_gpt2(0.1), c, 3);
    expect_equal_stages(tiny_llama(true), c, 3);
  }
}

TEST(Zero, AllStagesComputeTheSameBitsInBf16) {
  for (const Case& c : kCases) expect_equal_stages(tiny_llama(false), c, 2, {DType::kBF16});
  for (const Case& c : {kCases[1], kCases[7], kCases[12], kCases[17]}) {
    expect_equal_stages(tiny_gpt2(0.1), c, 2, {DType::kBF16});
    expect_equal_stages(tiny_llama(true), c, 2, {DType::kBF16, true});
  }
}

TEST(Zero, AllStagesComputeTheSameBitsInFp16) {
  for (const Case& c : {kCases[0], kCases[4], kCases[7], kCases[12], kCases[17]}) {
    expect_equal_stages(tiny_llama(true), c, 2, {DType::kF16, false, 1024.0});
  }
}

// Parameters P with their padding: 2 bytes a parameter of weights, 2 (4 if they are fp32) of gradients, 12 of master
// weights and moments.
TEST(Zero, Bf16StateIsThatOfTheFormulas) {
  for (const int dp : {2, 4}) {
    for (const bool fp32_gradients : {false, true}) {
      for (const int zero : {0, 1, 2, 3}) {
        TinyRun run = run_of(tiny_llama(false), {"", dp, 1, 1, 2}, zero, plan::default_reduce(zero));
        run.compute = DType::kBF16;
        run.fp32_gradients = fp32_gradients;
        std::int64_t p = 0;
        for (const plan::ShardUnit& unit : plan::shard_units(model::make_parameter_table(run.config), run.layout, 0)) {
          p += unit.elements;
        }
        const std::int64_t gradient = fp32_gradients ? 4 : 2;
        const std::int64_t whole = (zero < 3 ? 2 : 0) + (zero < 2 ? gradient : 0) + (zero < 1 ? 12 : 0);
        const std::int64_t sharded = 14 + gradient - whole;
        for (const RankReport& rank : train_world(run, 1).ranks) {
          std::int64_t state = 0;
          for (const MemoryClass c :
               {MemoryClass::kWeights, MemoryClass::kGradients, MemoryClass::kMasterWeights, MemoryClass::kMoments}) {
            state += rank.counted.current(c).count;
          }
          EXPECT_EQ(state, whole * p + sharded * p / dp) << "dp " << dp << ", zero " << zero;
        }
      }
    }
  }
}

// What a rank sends a step, but for sums of scalars, is half as much.
TEST(Zero, Bf16HalvesWhatIsSent) {
  for (const int zero : {0, 1, 2, 3}) {
    for (const Case& c : {kCases[12], kCases[0]}) {
      const auto sent = [&](DType compute) {
        TinyRun run = run_of(tiny_llama(false), c, zero, plan::default_reduce(zero));
        run.compute = compute;
        std::map<std::pair<std::string, std::string>, std::int64_t> bytes;
        for (const RankReport& rank : train_world(run, 1).ranks) {
          for (const comm::TrafficCount& one : rank.counted_traffic)
            bytes[{one.axis, one.collective}] += one.sent.count;
        }
        return bytes;
      };
      const auto wide = sent(DType::kF32), narrow = sent(DType::kBF16);
      std::int64_t halved = 0;
      for (const auto& [what, bytes] : wide) {
        if (what.second == "all-reduce" && (zero > 0 || what.first != "data")) {
          EXPECT_EQ(narrow.at(what), bytes) << what.first;  // of scalars alone
        } else if (what.second != "all-reduce") {
          EXPECT_EQ(2 * narrow.at(what), bytes) << what.first << " " << what.second;
          halved += bytes;
        } else {
          EXPECT_LT(2 * narrow.at(what) - bytes, bytes / 4);  // gradients, and a few scalars
          halved += bytes;
        }
      }
      EXPECT_GT(halved, 0);
    }
  }
}

// The same through `verify`, against stage 0.
TEST(Zero, VerifyRaisesNoAlarm) {
  VerifyRun verify;
  for (const Case& c : kCases) {
    for (int zero : {1, 2, 3}) {
      const TinyRun run = run_of(tiny_llama(false), c, zero, plan::default_reduce(zero));
      const auto number = [](std::int64_t n) { return std::to_string(n); };
      const VerifyRun::Settings settings{{"layout.dp", number(c.dp)},
                                         {"layout.tp", number(c.tp)},
                                         {"layout.pp", number(c.pp)},
                                         {"layout.zero", number(zero)},
                                         {"layout.schedule", std::string(plan::schedule_name(c.schedule))},
                                         {"layout.interleave", number(run.layout.interleave)},
                                         {"layout.recompute", std::string(model::recompute_name(c.recompute))},
                                         {"layout.sequence_parallel", c.sequence_parallel ? "true" : "false"},
                                         {"train.global_batch", number(run.batch.global_batch)},
                                         {"train.micro_batch", number(run.batch.micro_batch)}};
      plan::Layout reference = run.layout;
      reference.zero = 0;
      const train::VerifyReport report = verify.against(reference, settings);
      EXPECT_EQ(report.verdict, train::Verdict::kEqual)
          << c.name << ", zero " << zero << ": " << report.first->what << " of " << report.first->tensor;
    }
  }
}

}  // namespace
}  // namespace trireme::testing
