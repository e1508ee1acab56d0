// `verify` must be able to fail: faults planted in the target's ranks are found and named, and a clean build raises no
// alarm.

#include "engine/train/verify.h"

#include <gtest/gtest.h>

#include "base/fake_env.h"
#include "engine/data/tokenize.h"
#include "model/test_configs.h"

namespace trireme::train {
namespace {

class Verify : public ::testing::Test {
 protected:
  Verify() {
    std::string text;
    for (int i = 0; i < 400; ++i)
      text += "the quick brown fox jumps over lazy dog number " + std::to_string(i * 7) + "\n";
    env_.put_file("text.txt", text);
    data::tokenize_text(env_, {.text_path = "text.txt", .out_directory = "data", .progress = {}}).or_throw();
    model::Config config = model::small_llama();
    config.layers = 4;
    config.heads = 8;
    config.kv_heads = 2;
    config.head_dim = 4;
    config.hidden = 32;
    config.ffn = 64;
    config.vocabulary = 257;
    env_.put_file("config.json", model::to_hugging_face(config).dump(2));
  }

  using Settings = std::vector<std::pair<std::string, std::string>>;
  VerifyReport report(const Settings& more, const RankHooks& hooks = {}) {
    Settings settings{{"model.config", "config.json"}, {"data.train", "data/train.bin"}, {"train.steps", "3"},
                      {"train.sequence", "16"},        {"train.global_batch", "8"},      {"train.micro_batch", "1"},
                      {"train.threads", "1"},          {"out.directory", "out"},         {"train.deadline", "20"}};
    settings.insert(settings.end(), more.begin(), more.end());
    const ResolvedRun run = resolve_run(env_, make_run_config(Json::object(), settings).or_throw());
    return verify(env_, log_, run, {.reference = {}, .steps = 2, .target_hooks = hooks});
  }

  FakeEnv env_;
  MemoryLog log_;
};

// All instructions of an operation but the last are kept.
void drop_last(parallel::RunPlan& plan, plan::Op op) {
  std::vector<plan::Instruction>& list = plan.step.instructions;
  for (auto it = list.rbegin(); it != list.rend(); ++it) {
    if (it->op != op) continue;
    list.erase(std::next(it).base());
    return;
  }
}

void twice(parallel::RunPlan& plan, plan::Op op) {
  std::vector<plan::Instruction> list;
  for (const plan::Instruction& instruction : plan.step.instructions) {
    list.push_back(instruction);
    if (instruction.op == op) list.push_back(instruction);
  }
  plan.step.instructions = std::move(list);
}

TEST_F(Verify, RaisesNoAlarmOnACleanBuild) {
  EXPECT_EQ(report({{"layout.pp", "4"}}).verdict, Verdict::kEqual);
  EXPECT_EQ(report({{"layout.pp", "2"}, {"layout.schedule", "zb-h1"}}).verdict, Verdict::kEqual);
  for (const Settings& layout : {Settings{{"layout.dp", "2"}}, Settings{{"layout.tp", "4"}},
                                 Settings{{"layout.dp", "2"}, {"layout.tp", "2"}, {"layout.pp", "2"}}}) {
    const VerifyReport clean = report(layout);
    EXPECT_EQ(clean.verdict, Verdict::kWithinBound) << (clean.first ? clean.first->tensor : "");
    EXPECT_FALSE(clean.first.has_value());
  }
}

TEST_F(Verify, NamesKeyHeadGradientsThatAreCountedTwiceOrNotSummed) {
  const Settings layout{{"layout.tp", "4"}};  // two ranks share a key/value head
  const VerifyReport counted =
      report(layout, {.plan = [](auto& plan) { twice(plan, plan::Op::kReduceTensorPartial); }});
  ASSERT_TRUE(counted.first.has_value());
  EXPECT_EQ(counted.verdict, Verdict::kDifferent);
  EXPECT_EQ(counted.axis, "tensor");
  EXPECT_NE(counted.first->tensor.find("k_proj"), std::string::npos) << counted.first->tensor;
  // Not summed, two ranks hold different halves of one gradient: that is named at once.
  try {
    report(layout, {.plan = [](auto& plan) { drop_last(plan, plan::Op::kReduceTensorPartial); }});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kCorrupted);
    EXPECT_NE(std::string(error.what()).find("k_proj"), std::string::npos) << error.what();
  }
}

TEST_F(Verify, NamesADroppedBucket) {
  try {
    report({{"layout.dp", "2"}}, {.plan = [](auto& plan) { drop_last(plan, plan::Op::kReduce); }});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kCorrupted);
    EXPECT_NE(std::string(error.what()).find("embed_tokens"), std::string::npos) << error.what();
  }
}

TEST_F(Verify, NamesANormThatSkipsAShard) {
  const VerifyReport skipped = report({{"layout.tp", "2"}}, {.plan = [](parallel::RunPlan& plan) {
                                        if (plan.rank == 1) plan.step.shard_units[1].tensors.back().tensor_replicas = 2;
                                      }});
  ASSERT_TRUE(skipped.first.has_value());
  EXPECT_EQ(skipped.first->what, "gradient norm");
  EXPECT_EQ(skipped.first->step, 1);
  EXPECT_EQ(skipped.axis, "tensor");
}

TEST_F(Verify, NamesSamplesThatDependOnTheRank) {
  const VerifyReport seeded =
      report({{"layout.dp", "2"}}, {.sample = [](int rank, std::int64_t sample) { return sample + 100 * rank; }});
  ASSERT_TRUE(seeded.first.has_value());
  EXPECT_EQ(seeded.first->what, "loss");
  EXPECT_EQ(seeded.axis, "data");
}

TEST_F(Verify, NamesSwappedMicroBatchesInAPipeline) {
  const VerifyReport swapped = report({{"layout.pp", "2"}}, {.sample = [](int rank, std::int64_t sample) {
                                        return rank == 0 && sample % 8 < 2 ? sample / 8 * 8 + 1 - sample % 8 : sample;
                                      }});
  ASSERT_TRUE(swapped.first.has_value());
  EXPECT_TRUE(swapped.bits_promised);
  EXPECT_EQ(swapped.axis, "pipeline");
}

}  // namespace
}  // namespace trireme::train
