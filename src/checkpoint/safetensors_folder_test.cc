#include "checkpoint/safetensors_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/fake_env.h"

namespace trireme::checkpoint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class Folder : public testing::Test {
 protected:
  void put(const std::vector<std::string>& names) {
    for (const std::string& name : names) env_.put_file("d/" + name, "");
  }
  std::vector<std::string> files() { return safetensors_in(env_, "d").or_throw().files; }
  std::string refusal() {
    const Result<SafetensorsFolder> folder = safetensors_in(env_, "d");
    return folder.ok() ? "" : folder.failure().sentence();
  }
  FakeEnv env_;
};

TEST_F(Folder, TheModelsFileThenItsIndexThenWhateverIsNotAmbiguous) {
  put({"pytorch_model.bin", "weights.safetensors", "config.json"});
  EXPECT_THAT(files(), ElementsAre("d/weights.safetensors"));
  put({"model.safetensors.index.json", "model-00001-of-00002.safetensors"});
  EXPECT_EQ(safetensors_in(env_, "d")->index, "d/model.safetensors.index.json");
  put({"model.safetensors"});
  EXPECT_THAT(files(), ElementsAre("d/model.safetensors"));
}

TEST_F(Folder, ShardsNeedNoIndexWhereAllAreThere) {
  put({"model-00001-of-00003.safetensors", "model-00003-of-00003.safetensors"});
  EXPECT_THAT(refusal(), HasSubstr("d: shards 2 of 3 are not there"));
  put({"model-00002-of-00003.safetensors"});
  EXPECT_EQ(files().size(), 3U);
  put({"other.safetensors"});
  EXPECT_THAT(refusal(), HasSubstr("holds several safetensors and no model.safetensors.index.json"));
}

TEST_F(Folder, OneShardOfSeveralIsNotTheModel) {
  put({"model-00001-of-00002.safetensors"});
  EXPECT_THAT(refusal(), HasSubstr("shards 2 of 2 are not there"));
}

TEST_F(Folder, SeveralFilesAreAmbiguous) {
  put({"a.safetensors", "b.safetensors"});
  EXPECT_THAT(refusal(), HasSubstr("a.safetensors, b.safetensors; name the file that is meant"));
}

TEST_F(Folder, ACheckpointIsNoFolderOfWeights) {
  put({"manifest.json", "part-00000.safetensors"});
  EXPECT_THAT(refusal(), HasSubstr("is a checkpoint of a run"));
}

TEST_F(Folder, ARunsModelLiesBelowIt) {
  put({"run.toml", "metrics.jsonl", "model/model.safetensors"});
  EXPECT_THAT(refusal(), HasSubstr("the run's model is in d/model"));
}

TEST_F(Folder, WhatItHasInsteadIsNamed) {
  put({"config.json", "pytorch_model.bin"});
  EXPECT_THAT(refusal(), HasSubstr("pytorch_model.bin is a pickle of PyTorch, which is not read; save_pretrained"));
  env_.remove_file("d/pytorch_model.bin");
  put({"model-q4.gguf"});
  EXPECT_THAT(refusal(), HasSubstr("model-q4.gguf is a GGUF file"));
  env_.remove_file("d/model-q4.gguf");
  EXPECT_THAT(refusal(), HasSubstr("has neither model.safetensors nor model.safetensors.index.json"));
}

}  // namespace
}  // namespace trireme::checkpoint
