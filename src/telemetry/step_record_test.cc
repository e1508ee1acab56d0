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

TEST(StepRecord, AnMfuThatIsNotKnownIsNull) {
  StepRecord record = example();
  record.mfu.reset();
  const Json line = to_json(record);
  EXPECT_TRUE(line.find("mfu")->is_null());
  EXPECT_EQ(step_record_from_json(line).value().mfu, std::nullopt);
  EXPECT_EQ(step_record_from_json(to_json(example())).value().mfu, 0.25);
}

TEST(StepRecord, ALineThatLacksANumberIsRefusedByName) {
  const Result<StepRecord> back = step_record_from_json(Json::object({{"step", 1}}));
  ASSERT_FALSE(back.ok());
  EXPECT_EQ(back.failure().option, "clip_factor");
}

TEST(MetricsWriter, WritesALineAStep) {
  FakeEnv env;
  MemoryLog log;
  MetricsWriter writer(env, log, "metrics.jsonl");
  writer.write(example());
  writer.write(example());
  writer.close();
  const std::string text = env.read_file("metrics.jsonl");
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
}

class FullDisk : public testing::Test {
 protected:
  void leave(std::int64_t bytes) {
    constexpr std::int64_t kLarge = std::int64_t{1} << 40;
    env_.limit_bytes(kLarge);
    env_.limit_bytes(kLarge - env_.free_space(".").count + bytes);
  }
  void write(std::int64_t step) {
    StepRecord record = example();
    record.step = step;
    writer_.write(record);
  }
  std::vector<std::int64_t> steps() {
    std::vector<std::int64_t> found;
    for (const StepRecord& record : read_steps(env_, "metrics.jsonl")) found.push_back(record.step);
    return found;
  }

  FakeEnv env_;
  MemoryLog log_;
  MetricsWriter writer_{env_, log_, "metrics.jsonl"};
};

TEST_F(FullDisk, LinesAreKeptAndFollowThePartThatIsThere) {
  write(1);
  leave(100);
  write(2);
  write(3);
  EXPECT_EQ(steps(), std::vector<std::int64_t>{1});
  leave(50);
  write(4);
  env_.limit_bytes(-1);
  write(5);
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{1, 2, 3, 4, 5}));
  const std::string text = env_.read_file("metrics.jsonl");
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 5);
  ASSERT_EQ(log_.lines().size(), 2U);  // once that they are kept, once that they are written
  EXPECT_NE(log_.lines().front().second.find("No space left on device"), std::string::npos);
}

TEST_F(FullDisk, ThatStaysSoEndsTheRun) {
  leave(100);
  write(1);
  env_.advance(Seconds{29});
  EXPECT_NO_THROW(write(2));
  env_.advance(Seconds{2});
  try {
    write(3);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kStorage);
  }
}

TEST_F(FullDisk, TheEndWaitsForRoom) {
  leave(100);
  write(1);
  EXPECT_THROW(writer_.close(), Error);
  env_.limit_bytes(-1);
  writer_.close();
  EXPECT_EQ(steps(), std::vector<std::int64_t>{1});
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
