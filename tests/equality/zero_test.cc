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

void expect_equal_stages(const model::Config& config, const Case& c, int steps) {
  for (ReduceWhen reduce : {ReduceWhen::kStep, ReduceWhen::kMicrobatch}) {
    const WorldCurve plain = train_world(run_of(config, c, 0, reduce), steps);
    expect_as_planned(plain, c.name);
    for (int zero : {1, 2, 3}) {
      const std::string what = fmt::format("{}, zero {}, reduce {}", c.name, zero, plan::reduce_name(reduce));
      SCOPED_TRACE(what);
      const WorldCurve curve = train_world(run_of(config, c, zero, reduce), steps);
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
