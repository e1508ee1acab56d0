// Runs in narrow types: resumed they have the bits of an unbroken run, on any layout, and a checkpoint of any precision
// is one of every other.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/reader.h"
#include "checkpoint/safetensors.h"
#include "engine/train/test_small_run.h"
#include "telemetry/step_record.h"

namespace trireme::train {
namespace {

using testing::HasSubstr;

Settings with(Settings settings, const Settings& more) {
  settings.insert(settings.end(), more.begin(), more.end());
  return settings;
}
Settings in(const std::string& precision) { return {{"train.precision", precision}, {"checkpoint.interval", "2"}}; }

TEST(Precision, AResumedRunHasTheBitsOfAnUnbrokenOne) {
  for (const Settings& settings : {in("bf16"), with(in("bf16"), {{"train.fp32_gradients", "true"}}),
                                   with(in("fp16"), {{"optimizer.loss_scale_growth", "1"}})}) {
    for (const char* zero : {"0", "1", "3"}) {
      const Settings whole = with(settings, {{"layout.dp", "2"}, {"layout.zero", zero}, {"layout.reduce", "step"}});
      SmallRun unbroken, broken;
      ASSERT_EQ(unbroken.run(whole).error, "");
      ASSERT_EQ(broken.run(whole, [](std::int64_t step) { return step == 2; }).error, "");
      const SmallRun::Outcome rest = broken.run(with(whole, {{"layout.zero", "2"}}));
      ASSERT_EQ(rest.error, "");
      EXPECT_EQ(rest.first_step, 3);
      EXPECT_EQ(broken.curve(), unbroken.curve()) << "zero " << zero;
    }
  }
}

TEST(Precision, AnyCheckpointLoadsInEveryOther) {
  for (const char* before : {"fp32", "bf16", "fp16"}) {
    SmallRun run;
    ASSERT_EQ(run.run(in(before), [](std::int64_t step) { return step == 2; }).error, "");
    for (const char* after : {"fp32", "bf16", "fp16"}) {
      SmallRun other(run.files());
      if (std::string(before) != after) {
        EXPECT_THAT(other.run(in(after)).error, HasSubstr("train.precision was"));
      }
      EXPECT_EQ(other.run(with(in(after), {{"checkpoint.accept", "train.precision"}})).error, "")
          << before << " to " << after;
      EXPECT_EQ(other.curve().size(), 4U);
      const auto manifest = checkpoint::Reader::open_manifest(other.env(), checkpoint_path(4)).or_throw();
      EXPECT_EQ(manifest.progress.loss_scale > 0, std::string(after) == "fp16") << before << " to " << after;
    }
  }
}

TEST(Precision, TheModelIsWrittenInItsOwnType) {
  SmallRun run;
  ASSERT_EQ(run.run(in("bf16")).error, "");
  const auto file = checkpoint::SafetensorsReader::open(run.env(), "out/model").or_throw();
  for (const checkpoint::StoredTensor& tensor : file.tensors()) EXPECT_EQ(tensor.type, "BF16") << tensor.name;
  EXPECT_THAT(run.env().read_file("out/model/config.json"), HasSubstr("bfloat16"));
}

TEST(Precision, TheLossScaleIsToldAndGrows) {
  SmallRun run;
  ASSERT_EQ(run.run(with(in("fp16"), {{"optimizer.loss_scale", "1024"}, {"optimizer.loss_scale_growth", "2"}})).error,
            "");
  std::vector<double> scales;
  for (const telemetry::StepRecord& line : telemetry::read_steps(run.env(), "out/metrics.jsonl")) {
    EXPECT_FALSE(line.left_out);
    scales.push_back(line.loss_scale.value());
  }
  EXPECT_EQ(scales, (std::vector<double>{1024, 1024, 2048, 2048}));
}

TEST(Precision, AnOverflowIsToldAndTheScaleHalved) {
  SmallRun run;
  ASSERT_EQ(run.run(with(in("fp16"), {{"optimizer.loss_scale", "16777216"}})).error, "");
  const std::vector<telemetry::StepRecord> lines = telemetry::read_steps(run.env(), "out/metrics.jsonl");
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_TRUE(lines[0].left_out);
  EXPECT_EQ(lines[1].loss_scale, 8388608);
  EXPECT_THAT(run.logged(), HasSubstr("a gradient overflowed at loss scale 16777216"));
}

TEST(Precision, WhatCannotBeIsRefused) {
  SmallRun run;
  EXPECT_THAT(run.run({{"train.precision", "int8"}}).error, HasSubstr("train.precision = int8"));
  EXPECT_THAT(run.run({{"optimizer.loss_scale", "8"}}).error, HasSubstr("is of fp16 runs"));
  EXPECT_THAT(run.run(with(in("fp16"), {{"optimizer.loss_scale", "1000"}})).error, HasSubstr("a power of two"));
  EXPECT_THAT(run.run(with(in("bf16"), {{"layout.dp", "2"}, {"layout.all_reduce", "library"}})).error,
              HasSubstr("sums no bf16"));
}

}  // namespace
}  // namespace trireme::train
