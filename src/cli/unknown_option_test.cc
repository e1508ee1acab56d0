#include "cli/unknown_option.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cli/commands.h"
#include "engine/train/foreign_names.h"

namespace trireme::cli {
namespace {

const std::vector<std::string> kPlan = {"--help", "model", "--layers", "--hidden", "--tp", "--pp", "--dp", "--cost"};

std::string sentence(const std::string& word, bool takes_keys = false) {
  return unknown_option(word, kPlan, takes_keys).sentence();
}
constexpr const char* kKnown = "known: --layers, --hidden, --tp, --pp, --dp, --cost";

TEST(UnknownOption, OfAnotherTrainer) {
  EXPECT_EQ(sentence("--num-layers"), "--num-layers: unknown option; did you mean --layers?");
  EXPECT_EQ(sentence("--tensor-model-parallel-size=8"),
            "--tensor-model-parallel-size: unknown option; did you mean --tp?");
  EXPECT_EQ(sentence("--hidden_size"), "--hidden_size: unknown option; did you mean --hidden?");
  EXPECT_EQ(sentence("--cp"), std::string("--cp: context parallelism is not planned or trained yet; ") + kKnown);
  EXPECT_EQ(sentence("--ep=2"), std::string("--ep: expert parallelism is not planned or trained yet; ") + kKnown);
}

TEST(UnknownOption, EveryFlagThatAForeignNameLeadsToIsOneOfPlan) {
  const char* arguments[] = {"trireme", "plan", "--help"};
  ::testing::internal::CaptureStdout();
  run_program(3, const_cast<char**>(arguments), [](Command& root) { declare_plan(root, posix_env()); });
  const std::string help = ::testing::internal::GetCapturedStdout();
  for (const train::ForeignNames& row : train::foreign_names()) {
    if (row.flag.empty()) continue;
    EXPECT_NE(help.find(fmt::format("--{} ", row.flag)), std::string::npos) << row.flag;
  }
}

TEST(UnknownOption, NearOrNone) {
  EXPECT_EQ(sentence("--coast"), "--coast: unknown option; did you mean --cost?");
  EXPECT_EQ(sentence("--layres"), "--layres: unknown option; did you mean --layers?");
  EXPECT_EQ(sentence("--xyzzy"), std::string("--xyzzy: unknown option; ") + kKnown);
  EXPECT_EQ(sentence("--lr"), std::string("--lr: unknown option; ") + kKnown);  // plan has no optimizer
  EXPECT_EQ(sentence("--wandb"), std::string("--wandb: unknown option; ") + kKnown);
}

TEST(UnknownOption, OfACommandThatTakesKeys) {
  EXPECT_EQ(sentence("--lr", true), "--lr: unknown option; did you mean --optimizer.learning_rate?");
  EXPECT_EQ(sentence("--steps", true), "--steps: unknown option; did you mean --train.steps?");
  EXPECT_EQ(sentence("--micro-batch-size", true),
            "--micro-batch-size: unknown option; did you mean --train.micro_batch?");
  EXPECT_EQ(sentence("--epochs", true),
            "--epochs: unknown option; a run is as long as train.steps says, in steps of train.global_batch sequences");
  EXPECT_EQ(sentence("--xyzzy", true),
            std::string("--xyzzy: unknown option; ") + kKnown + ", and every key of run.toml as --section.key");
}

}  // namespace
}  // namespace trireme::cli
