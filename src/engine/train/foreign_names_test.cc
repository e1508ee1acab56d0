#include "engine/train/foreign_names.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "base/words.h"
#include "engine/train/run_keys.h"

namespace trireme::train {
namespace {

std::string refusal(const std::string& name) { return unknown_key(name).sentence(); }

TEST(ForeignNames, EveryTargetIsAKey) {
  std::set<std::string_view> seen;
  for (const ForeignNames& row : foreign_names()) {
    const bool is_key = std::ranges::any_of(run_keys(), [&](const RunKey& key) { return key.name == row.key; });
    EXPECT_TRUE(row.key.empty() || is_key) << row.key;
    EXPECT_TRUE(!row.key.empty() || !row.advice.empty()) << row.names;
    EXPECT_TRUE(row.advice.empty() || row.advice.substr(0, row.advice.find(',')).find(' ') != std::string_view::npos)
        << row.advice;  // or it would read as a legal value
    EXPECT_FALSE(row.names.empty()) << row.key;
    for (const std::string_view name : words_of(row.names)) {
      EXPECT_TRUE(seen.insert(name).second) << name << " is there twice";
      EXPECT_TRUE(std::ranges::all_of(name, [](char c) {
        return std::islower(c) || std::isdigit(c) || c == '_' || c == '.';
      })) << name;
      EXPECT_EQ(find_foreign(name), &row) << name;
    }
  }
}

TEST(ForeignNames, AreFoundAsTheyAreWritten) {
  for (const char* written :
       {"lr", "LR", "optimizer.lr", "--lr", "--learning-rate", "training.optimizer.learning_rate"}) {
    const ForeignNames* found = find_foreign(written);
    ASSERT_NE(found, nullptr) << written;
    EXPECT_EQ(found->key, "optimizer.learning_rate") << written;
  }
  EXPECT_EQ(find_foreign("--tensor-model-parallel-size")->flag, "tp");
  for (const char* unknown : {"", "--", ".", "nonsense", "l", "lr lr"}) EXPECT_EQ(find_foreign(unknown), nullptr);
}

TEST(UnknownKey, LeadsToWhatItIsHere) {
  EXPECT_EQ(refusal("optimizer.lr"), "optimizer.lr: unknown key; nearest legal: optimizer.learning_rate");
  EXPECT_EQ(refusal("optimizer.grad_clip"), "optimizer.grad_clip: unknown key; nearest legal: optimizer.clip_norm");
  EXPECT_EQ(refusal("train.batch_size"), "train.batch_size: unknown key; nearest legal: train.global_batch");
  EXPECT_EQ(refusal("train.bf16"), "train.bf16: unknown key; nearest legal: train.precision");
  EXPECT_EQ(refusal("train.seq_len"), "train.seq_len: unknown key; nearest legal: train.sequence");
  EXPECT_EQ(
      refusal("train.gradient_accumulation_steps"),
      "train.gradient_accumulation_steps: unknown key; it follows: global batch / (train.micro_batch x layout.dp); "
      "choose train.micro_batch");
  EXPECT_EQ(refusal("model.num_layers"),
            "model.num_layers: unknown key; is of the model: its config.json says it (model.config)");
  EXPECT_NE(refusal("train.wandb_project").find("metrics.jsonl"), std::string::npos);
  EXPECT_NE(refusal("layout.context_parallel_size").find("context parallelism is not"), std::string::npos);
  EXPECT_NE(refusal("optimizer.type").find("the optimizer is AdamW"), std::string::npos);
  EXPECT_NE(refusal("zero_optimization.stage").find("nearest legal: layout.zero"), std::string::npos);
  EXPECT_NE(refusal("activation_checkpoint.mode").find("nearest legal: layout.recompute"), std::string::npos);
  EXPECT_NE(refusal("bf16.enabled").find("nearest legal: train.precision"), std::string::npos);
  EXPECT_NE(refusal("save_steps").find("nearest legal: checkpoint.interval"), std::string::npos);
}

TEST(UnknownKey, OfAnotherSectionOrMistyped) {
  EXPECT_EQ(refusal("train.learning_rate"), "train.learning_rate: unknown key; nearest legal: optimizer.learning_rate");
  EXPECT_EQ(refusal("optimizer.steps"), "optimizer.steps: unknown key; nearest legal: train.steps");
  EXPECT_EQ(refusal("train.step"), "train.step: unknown key; nearest legal: train.steps");
  EXPECT_EQ(refusal("optimizer.learnig_rate"),
            "optimizer.learnig_rate: unknown key; nearest legal: optimizer.learning_rate");
  EXPECT_EQ(refusal("training.micro_bacth"), "training.micro_bacth: unknown key; nearest legal: train.micro_batch");
}

TEST(UnknownKey, NoWordWhereNoneIsNear) {
  for (const char* name : {"train.foo", "foo", "optimizer.xyzzy", "layout.qq", "train.flux_capacitor"}) {
    EXPECT_EQ(refusal(name), std::string(name) + ": unknown key");
  }
}

}  // namespace
}  // namespace trireme::train
