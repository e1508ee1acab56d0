#include "checkpoint/model_weights.h"

#include <functional>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/fake_env.h"
#include "checkpoint/safetensors_writer.h"
#include "model/test_configs.h"

namespace trireme::checkpoint {
namespace {

using testing::HasSubstr;
using Rename = std::function<std::string(const std::string&)>;

model::Config tied_llama() {
  model::Config config = model::small_llama();
  config.tied_embeddings = true;
  return config;
}

std::vector<float> values_of(std::size_t parameter, std::int64_t elements) {
  std::vector<float> values(static_cast<std::size_t>(elements));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>((parameter * 7 + i) % 61);
  return values;
}

class Weights : public testing::Test {
 protected:
  // A file of a model's tensors under other names ("": left out), and more of them.
  void put(const model::Config& config, const Rename& rename, const std::vector<TensorSpec>& more = {},
           const std::string& path = "w.safetensors") {
    table_ = model::make_parameter_table(config);
    std::vector<TensorSpec> specs;
    for (const model::Parameter& parameter : table_.parameters) {
      if (!rename(parameter.name).empty()) specs.push_back({rename(parameter.name), DType::kF32, parameter.shape});
    }
    specs.insert(specs.end(), more.begin(), more.end());
    SafetensorsWriter writer(env_, path, specs);
    for (std::size_t p = 0; p < table_.parameters.size(); ++p) {
      const model::Parameter& parameter = table_.parameters[p];
      if (!rename(parameter.name).empty()) {
        writer.write_floats(rename(parameter.name), values_of(p, parameter.elements()));
      }
    }
    for (const TensorSpec& spec : more) {  // as the embedding is
      std::int64_t elements = 1;
      for (const std::int64_t size : spec.shape) elements *= size;
      writer.write_floats(spec.name, values_of(0, elements));
    }
    writer.finish();
  }
  void expect_read(const std::string& path = "w.safetensors") {
    const Result<ModelWeights> weights = ModelWeights::open(env_, path, table_);
    ASSERT_TRUE(weights.ok()) << weights.failure().sentence();
    for (std::size_t p = 0; p < table_.parameters.size(); ++p) {
      const model::Parameter& parameter = table_.parameters[p];
      std::vector<float> values(static_cast<std::size_t>(parameter.elements()));
      weights->read_box(p, {0, parameter.rows()}, {0, parameter.columns()}, values);
      EXPECT_EQ(values, values_of(p, parameter.elements())) << parameter.name;
    }
  }
  std::string refusal(const std::string& path = "w.safetensors") {
    const Result<ModelWeights> weights = ModelWeights::open(env_, path, table_);
    if (weights.ok()) return "";
    EXPECT_EQ(weights.failure().code, ExitCode::kUsage);
    return weights.failure().sentence();
  }

  FakeEnv env_;
  model::ParameterTable table_ = model::make_parameter_table(model::small_llama());
};

const Rename kSame = [](const std::string& name) { return name; };
Rename with(const std::string& prefix) {
  return [prefix](const std::string& name) { return prefix + name; };
}
std::string bare(const std::string& name) { return name.substr(name.find('.') + 1); }

TEST_F(Weights, AreReadUnderTheNamesThatWrappersLeave) {
  const Rename renames[] = {
      kSame,
      with("_orig_mod."),
      with("module."),
      with("module._orig_mod."),
      with("_orig_mod.module."),
      with("model."),
      with("transformer."),
      with("language_model."),
      with("base_model.model."),
      with("_fsdp_wrapped_module."),
      [](const std::string& name) {  // layers that were compiled one by one
        return name.starts_with("model.layers.") ? name.substr(0, 15) + "_orig_mod." + name.substr(15) : name;
      },
      [](const std::string& name) { return name.starts_with("model.") ? bare(name) : name; },
      [](const std::string& name) { return name.starts_with("model.") ? "transformer." + bare(name) : name; },
      [](const std::string& name) { return name.starts_with("model.") ? name : "model." + name; },
      [](const std::string& name) { return "module." + (name.starts_with("model.") ? bare(name) : name); },
  };
  for (const Rename& rename : renames) {
    SCOPED_TRACE(rename("model.layers.1.mlp.up_proj.weight"));
    put(model::small_llama(), rename);
    expect_read();
  }
  for (const char* prefix : {"", "_orig_mod.", "module.", "model."}) {
    put(model::small_gpt2(), with(prefix));
    expect_read();
    put(model::small_gpt2(), [&](const std::string& name) { return prefix + bare(name); });
    expect_read();
  }
}

TEST_F(Weights, TwoTensorsForOneParameterAreRefused) {
  const std::vector<std::int64_t> shape = table_.parameters.front().shape;
  put(model::small_llama(), kSame, {{"_orig_mod.model.embed_tokens.weight", DType::kF32, shape}});
  EXPECT_THAT(refusal(), HasSubstr("are both model.embed_tokens.weight"));
  put(model::small_llama(), kSame, {{"embed_tokens.weight", DType::kF32, shape}});
  EXPECT_THAT(refusal(), HasSubstr("are both model.embed_tokens.weight"));
}

TEST_F(Weights, WhatIsMissingOrNoneOfTheModelsIsNamed) {
  put(model::small_llama(), [](const std::string& name) { return name.find("mlp") == std::string::npos ? name : ""; });
  EXPECT_THAT(refusal(),
              HasSubstr("w.safetensors: there is no tensor model.layers.0.mlp.gate_proj.weight, "
                        "model.layers.0.mlp.up_proj.weight, model.layers.0.mlp.down_proj.weight and 3 more"));
  put(model::small_llama(), [](const std::string& name) { return name == "lm_head.weight" ? "" : name; });
  EXPECT_THAT(refusal(), HasSubstr("no tensor lm_head.weight; a file without a head is of a model whose config.json"));
  put(model::small_llama(), kSame, {{"visual.patch.weight", DType::kF32, {2}}, {"visual.x", DType::kF32, {2}}});
  EXPECT_THAT(refusal(), HasSubstr("visual.patch.weight is no tensor of this model, nor are 1 others"));
  put(model::small_llama(), with("base_model.model."),
      {{"base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight", DType::kF32, {2}}});
  EXPECT_THAT(refusal(), HasSubstr("merge it into its model"));
  put(model::small_llama(), kSame, {{"model.layers.0.mlp.up_proj.weight_scale", DType::kF32, {2}}});
  EXPECT_THAT(refusal(), HasSubstr("quantised weights"));
}

TEST_F(Weights, OldBuffersAreNoWeights) {
  put(model::small_llama(), kSame,
      {{"model.layers.0.self_attn.rotary_emb.inv_freq", DType::kF32, {2}}, {"rotary_emb.inv_freq", DType::kF32, {2}}});
  expect_read();
}

TEST_F(Weights, ATiedHeadThatIsWrittenOutMustBeTheEmbedding) {
  for (const char* name : {"lm_head.weight", "model.lm_head.weight"}) {
    put(tied_llama(), kSame, {{name, DType::kF32, table_.parameters.front().shape}});
    expect_read();
  }
  const std::vector<std::int64_t> shape = model::make_parameter_table(tied_llama()).parameters.front().shape;
  put(tied_llama(), kSame, {{"lm_head.weight", DType::kF32, shape}});
  std::string content = env_.content("w.safetensors");
  const std::size_t from_end = static_cast<std::size_t>((shape[0] - 3) * shape[1]) * 4;  // row 3 of the last tensor
  content[content.size() - from_end + 2] ^= 0x20;
  env_.put_file("w.safetensors", content);
  EXPECT_THAT(refusal(),
              HasSubstr("lm_head.weight is another tensor than model.embed_tokens.weight (row 3 differs), and "
                        "the model's config ties the two; a model with a head of its own says "
                        "\"tie_word_embeddings\": false"));
  put(tied_llama(), kSame, {{"lm_head.weight", DType::kF32, {shape[0] + 1, shape[1]}}});
  EXPECT_THAT(refusal(), HasSubstr("lm_head.weight is another tensor"));
  put(tied_llama(), kSame, {{"lm_head.weight", DType::kF32, shape}, {"model.lm_head.weight", DType::kF32, shape}});
  EXPECT_THAT(refusal(), HasSubstr("lm_head.weight is no tensor of this model"));
}

TEST_F(Weights, ATiedTensorMayHaveTheHeadsNameAlone) {
  put(tied_llama(),
      [](const std::string& name) { return name == "model.embed_tokens.weight" ? "lm_head.weight" : name; });
  expect_read();
  put(model::small_llama(), [](const std::string& name) { return name == "model.embed_tokens.weight" ? "" : name; });
  EXPECT_THAT(refusal(), HasSubstr("there is no tensor model.embed_tokens.weight"));
}

TEST_F(Weights, NumbersThatAreNotFiniteAreNamed) {
  put(model::small_llama(), kSame);
  const std::string good = env_.content("w.safetensors");
  const auto header = static_cast<std::size_t>(static_cast<unsigned char>(good[0])) +
                      (static_cast<std::size_t>(static_cast<unsigned char>(good[1])) << 8);
  for (const auto& [bits, word] : {std::pair(std::numeric_limits<float>::quiet_NaN(), "NaN"),
                                   std::pair(-std::numeric_limits<float>::infinity(), "infinity")}) {
    std::string bad = good;
    const std::size_t element = 5 * 16 + 3;  // of the first tensor, which is 16 wide
    bad.replace(8 + header + 4 * element, 4, reinterpret_cast<const char*>(&bits), 4);
    env_.put_file("w.safetensors", bad);
    const ModelWeights weights = ModelWeights::open(env_, "w.safetensors", table_).or_throw();
    std::vector<float> values(2 * 4);
    try {
      weights.read_box(0, {4, 6}, {2, 6}, values);
      FAIL() << "was read";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kDiverged);
      EXPECT_THAT(error.what(),
                  HasSubstr(std::string("model.embed_tokens.weight is not finite: ") + word + " at [5, 3]"));
    }
    EXPECT_NO_THROW(weights.read_box(0, {0, 4}, {0, 2}, values));
  }
}

TEST_F(Weights, FilesThatAreNoSafetensorsAreRefusedWithTheRemedy) {
  const struct {
    std::string content;
    std::string words;
  } cases[] = {
      {"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 267\n",
       "w.safetensors: is a git-lfs pointer, not a safetensors file; `git lfs pull` brings the file itself"},
      {"<!DOCTYPE html>\n<html><head><title>Sign in</title>",
       "is a web page, not a safetensors file; download the file"},
      {"{\"error\": \"Repository not found, or access denied\"}", "is JSON text, not a safetensors file"},
      {"PK\x03\x04" + std::string(60, '\1'), "is a zip archive (as PyTorch's"},
      {"GGUF" + std::string(60, '\1'), "is a GGUF file, not a safetensors file; save_pretrained"},
      {"", "truncated: 0 bytes, the length of the header alone takes 8; download or copy the weights again"},
      {std::string(4096, '\0'), "the header does not begin with {; download or copy"},
  };
  for (const auto& one : cases) {
    env_.put_file("w.safetensors", one.content);
    EXPECT_THAT(refusal(), HasSubstr(one.words));
  }
  put(model::small_llama(), kSame);
  const std::string whole = env_.content("w.safetensors");
  for (const std::size_t size : {std::size_t{7}, std::size_t{500}, whole.size() - 1}) {
    env_.put_file("w.safetensors", whole.substr(0, size));
    EXPECT_THAT(refusal(), HasSubstr("truncated")) << size;
  }
  EXPECT_THAT(refusal("nowhere"), HasSubstr("nowhere: there is no such file or directory"));
}

TEST_F(Weights, AnIndexWithoutItsShardsIsRefused) {
  const std::string map = R"({"weight_map": {"a": "1.safetensors", "b": "2.safetensors", "c": "3.safetensors"}})";
  env_.put_file("d/model.safetensors.index.json", map);
  put(model::small_llama(), kSame, {}, "d/1.safetensors");
  EXPECT_THAT(refusal("d"), HasSubstr("there is no file d/2.safetensors, nor 1 others of 3; download or copy"));
  env_.put_file("d/model-2.safetensors", "");
  EXPECT_THAT(refusal("d"), HasSubstr("it does not name model-2.safetensors"));
  env_.put_file("d/model.safetensors.index.json", "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\n");
  EXPECT_THAT(refusal("d"), HasSubstr("is a git-lfs pointer, not an index; `git lfs pull`"));
  env_.put_file("d/model.safetensors.index.json", R"({"weight_map": {"a": "1.safetensors", "a": "1.safetensors"}})");
  EXPECT_THAT(refusal("d"), HasSubstr("duplicate key"));
}

}  // namespace
}  // namespace trireme::checkpoint
