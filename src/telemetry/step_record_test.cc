#include "telemetry/step_record.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "base/fake_env.h"

namespace trireme::telemetry {
namespace {

StepRecord example() {
  return {.step = 7,
          .loss = 3.1415926535897931,
          .grad_norm = 0.1,
          .clip_factor = 1.0,
          .learning_rate = 3e-4,
          .first_sample = 36,
          .samples = 6,
          .tokens = 7168,
          .tokens_per_s = 1234.5,
          .mfu = 0.25,
          .step_s = 0.83,
          .resident_bytes = 123456789,
          .validation_loss = 2.5};
}

TEST(StepRecord, KeepsEveryBitOfLossAndNorm) {
  const StepRecord back = step_record_from_json(to_json(example())).value();
  EXPECT_EQ(back.loss, example().loss);
  EXPECT_EQ(back.grad_norm, example().grad_norm);
  EXPECT_EQ(back.validation_loss, example().validation_loss);
  EXPECT_EQ(back.step, 7);
  EXPECT_EQ(back.first_sample, 36);
  EXPECT_EQ(back.samples, 6);
}

TEST(StepRecord, HasTheNamesThatScriptsRelyOn) {
  const Json line = to_json(example());
  for (const char* key : {"step", "loss", "loss_hex", "grad_norm", "grad_norm_hex", "lr", "first_sample", "samples",
                          "tokens", "tokens_per_s", "mfu", "validation_loss"}) {
    EXPECT_NE(line.find(key), nullptr) << key;
  }
}

TEST(StepRecord, ADivergedLossIsStillALine) {
  StepRecord record = example();
  record.loss = std::numeric_limits<double>::quiet_NaN();
  const Json line = to_json(record);
  EXPECT_TRUE(line.find("loss")->is_null());
  EXPECT_TRUE(std::isnan(step_record_from_json(line).value().loss));
}

TEST(StepRecord, ALineThatLacksANumberIsRefusedByName) {
  const Result<StepRecord> back = step_record_from_json(Json::object({{"step", 1}}));
  ASSERT_FALSE(back.ok());
  EXPECT_EQ(back.failure().option, "clip_factor");
}

TEST(MetricsWriter, WritesALineAStep) {
  FakeEnv env;
  MetricsWriter writer(env, "metrics.jsonl");
  writer.write(example());
  writer.write(example());
  writer.close();
  const std::string text = env.read_file("metrics.jsonl");
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
}

TEST(ReadSteps, EndsAtATornLine) {
  FakeEnv env;
  EXPECT_TRUE(read_steps(env, "metrics.jsonl").empty());
  const std::string line = to_json(example()).dump() + "\n";
  for (const std::string& torn : {std::string("{\"step\": 3, "), std::string("{}\n") + line, std::string(9, '\0')}) {
    env.write_file_atomically("metrics.jsonl", line + line + torn);
    EXPECT_EQ(read_steps(env, "metrics.jsonl").size(), 2U) << torn;
  }
}

}  // namespace
}  // namespace trireme::telemetry
