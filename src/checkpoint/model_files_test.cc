#include "checkpoint/model_files.h"

#include <gmock/gmock.h>

#include "base/fake_env.h"
#include "checkpoint/hugging_face.h"
#include "checkpoint/safetensors_writer.h"
#include "checkpoint/store.h"
#include "model/test_configs.h"

namespace trireme::checkpoint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> names_of(const std::vector<ModelFile>& files) {
  std::vector<std::string> names;
  for (const ModelFile& file : files) names.push_back(file.name);
  return names;
}

TEST(ModelFiles, AreThoseOfTokenizersAndOfGeneration) {
  for (const char* name :
       {"generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
        "tokenizer.model", "tokenizer.model.v3", "vocab.json", "merges.txt", "vocab.txt", "added_tokens.json",
        "chat_template.jinja", "chat_template.json", "spiece.model", "tekken.json"}) {
    EXPECT_TRUE(is_carried(name)) << name;
  }
  for (const char* name : {"config.json", "model.safetensors", "model.safetensors.index.json", "README.md",
                           "tokenizer_x.py", "manifest.json", "part-00000.safetensors", "optimizer.pt"}) {
    EXPECT_FALSE(is_carried(name)) << name;
  }
}

TEST(ModelFiles, ATokenizerIsNotPutTogetherOfTwo) {
  FakeEnv env;
  env.put_file("/config/config.json", "{}");
  env.put_file("/config/generation_config.json", "g1");
  env.put_file("/weights/generation_config.json", "g2");
  env.put_file("/weights/tokenizer.json", "t2");
  env.put_file("/weights/tokenizer_config.json", "c2");
  env.put_file("/old/vocab.json", "v3");
  env.put_file("/old/merges.txt", "m3");
  const auto found = find_model_files(env, {"/config/config.json", "", "/weights", "/old", "/gone"});
  EXPECT_THAT(names_of(found), ElementsAre("generation_config.json", "tokenizer.json", "tokenizer_config.json"));
  EXPECT_EQ(found[0].content, "g1");
  EXPECT_EQ(found[1].content, "t2");
  EXPECT_THAT(names_of(find_model_files(env, {"/old", "/weights"})),
              ElementsAre("generation_config.json", "merges.txt", "vocab.json"));
  EXPECT_THAT(find_model_files(env, {"/gone", ""}), IsEmpty());
}

// A folder of a small llama with all that people have beside the weights.
constexpr std::string_view kConfig = R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
  "_name_or_path": "x/y", "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "head_dim": 4, "vocab_size": 53, "max_position_embeddings": 64, "rms_norm_eps": 1e-05,
  "rope_theta": 10000.0, "hidden_act": "gelu_pytorch_tanh", "tie_word_embeddings": false, "bos_token_id": 1,
  "eos_token_id": [50, 51, 52], "pad_token_id": 7, "torch_dtype": "bfloat16", "use_cache": true, "temperature": 0.6,
  "task_specific_params": {"a": [1, 2.5, null]}, "transformers_version": "4.40.0"})";

class CarriedFiles : public testing::Test {
 protected:
  void SetUp() override { put_folder(env_); }
  static void put_folder(FakeEnv& env) {
    env.put_file("hf/config.json", kConfig);
    const model::ParameterTable table = model::make_parameter_table(model::load_config(env, "hf").or_throw());
    std::vector<TensorSpec> specs;
    for (const auto& parameter : table.parameters) specs.push_back({parameter.name, DType::kF32, parameter.shape});
    SafetensorsWriter writer(env, "hf/model.safetensors", specs);
    for (const auto& parameter : table.parameters) {
      writer.write_floats(parameter.name, std::vector<float>(static_cast<std::size_t>(parameter.elements()), 0.5F));
    }
    writer.finish();
    for (const auto& [name, content] : kept()) env.put_file("hf/" + name, content);
    env.put_file("hf/README.md", "of other weights");
  }
  static std::vector<ModelFile> kept() {
    return {{"chat_template.jinja", "{{ messages }}"},
            {"generation_config.json", "{\"eos_token_id\": [50, 51, 52]}\n"},
            {"tokenizer.json", std::string("{\"\0\x80\"}", 6)},
            {"tokenizer_config.json", ""}};
  }
  Json exported(DType dtype) {
    const Reader reader = Reader::open(env_, "start/step-00000000").or_throw();
    report_ = export_hugging_face(env_, reader, "out", {.dtype = dtype});
    return parse_json(env_.content("out/config.json"), "config").or_throw();
  }

  FakeEnv env_;
  ExportReport report_;
};

TEST_F(CarriedFiles, ComeOutAsTheyWentInAfterTheFolderIsGone) {
  import_hugging_face(env_, "hf", "start");
  for (const std::string& name : env_.list_directory("hf")) env_.remove_file("hf/" + name);
  Json expected = parse_json(kConfig, "config").or_throw();
  expected["torch_dtype"] = "float16";
  EXPECT_EQ(exported(DType::kF16), expected);
  EXPECT_THAT(report_.files, ElementsAre("model.safetensors", "chat_template.jinja", "generation_config.json",
                                         "tokenizer.json", "tokenizer_config.json", "config.json"));
  EXPECT_EQ(report_.warning, "");
  for (const auto& [name, content] : kept()) EXPECT_EQ(env_.content("out/" + name), content) << name;
  EXPECT_FALSE(env_.exists("out/README.md"));
  EXPECT_THAT(damages_of(env_, "start/step-00000000"), IsEmpty());
}

TEST_F(CarriedFiles, AreUnderTheManifestsChecksums) {
  import_hugging_face(env_, "hf", "start");
  const std::string path = "start/step-00000000/tokenizer.json";
  const Manifest manifest = Reader::open_manifest(env_, "start/step-00000000").or_throw();
  EXPECT_EQ(manifest.version(), 2);
  ASSERT_EQ(manifest.model_files.size(), 4U);
  env_.put_file(path, std::string(6, 'x'));
  EXPECT_THAT(damages_of(env_, "start/step-00000000"), ElementsAre(HasSubstr("tokenizer.json: expected checksum")));
  EXPECT_THROW(exported(DType::kF32), Error);
  EXPECT_FALSE(env_.exists("out/model.safetensors"));
  env_.put_file(path, "short");
  EXPECT_THAT(damages_of(env_, "start/step-00000000"), ElementsAre(HasSubstr("expected 6 bytes, found 5")));
  EXPECT_THAT(Reader::open(env_, "start/step-00000000").failure().sentence(), HasSubstr("expected 6 bytes, found 5"));
  env_.remove_file(path);
  EXPECT_THAT(Reader::open(env_, "start/step-00000000").failure().sentence(), HasSubstr("tokenizer.json: missing"));
}

TEST_F(CarriedFiles, AnImportThatFailsAnywhereLeavesNoCheckpointOrAWholeOne) {
  FakeEnv counted;
  put_folder(counted);
  counted.fail_operation(0);
  import_hugging_face(counted, "hf", "start");
  for (std::int64_t n = 1; n <= counted.operations(); ++n) {
    FakeEnv env;
    put_folder(env);
    env.fail_operation(n);
    try {
      import_hugging_face(env, "hf", "start");
    } catch (const Error&) {
      env.fail_operation(0);
      if (!env.exists("start/step-00000000")) continue;
    }
    env.fail_operation(0);
    EXPECT_THAT(damages_of(env, "start/step-00000000"), IsEmpty()) << n;
    EXPECT_EQ(
        read_model_files(env, "start/step-00000000", Reader::open_manifest(env, "start/step-00000000").or_throw()),
        kept());
  }
}

TEST_F(CarriedFiles, AnotherTokenizerTakesThePlaceOfTheCheckpoints) {
  import_hugging_face(env_, "hf", "start");
  env_.put_file("mine.json", "mine");
  const Reader reader = Reader::open(env_, "start/step-00000000").or_throw();
  export_hugging_face(env_, reader, "out", {.tokenizer = "mine.json"});
  EXPECT_EQ(env_.content("out/tokenizer.json"), "mine");
  EXPECT_EQ(env_.content("out/chat_template.jinja"), "{{ messages }}");
}

TEST_F(CarriedFiles, AWidthThatHeadsDoNotDivideIsSaid) {
  model::Config config = model::small_llama();
  EXPECT_EQ(refused_elsewhere(config), "");
  config.heads = 3;
  EXPECT_THAT(refused_elsewhere(config), HasSubstr("hidden_size (16) is no multiple of num_attention_heads (3)"));
  config.family = model::Family::kQwen3;
  EXPECT_EQ(refused_elsewhere(config), "");
}

TEST(HuggingFaceConfig, IsTheDocumentButForTheType) {
  const model::Config config = model::small_llama();
  const auto text = [&](std::string_view document) {
    return parse_json(hugging_face_config(parse_json(document, "c").or_throw(), config, DType::kBF16), "c").or_throw();
  };
  const auto json = [](std::string_view document) { return parse_json(document, "c").or_throw(); };
  EXPECT_EQ(text(R"({"architectures": ["X"], "a": 1})"),
            json(R"({"architectures": ["X"], "a": 1, "torch_dtype": "bfloat16"})"));
  EXPECT_EQ(text(R"({"dtype": "float32", "architectures": null})"),
            json(R"({"dtype": "bfloat16", "architectures": null})"));
  EXPECT_EQ(text(R"({"torch_dtype": "x", "dtype": "y", "architectures": []})"),
            json(R"({"torch_dtype": "bfloat16", "dtype": "bfloat16", "architectures": []})"));
  EXPECT_EQ(*text(R"({"a": 1})").find("architectures"), json(R"(["LlamaForCausalLM"])"));
  EXPECT_EQ(model::parse_config(text("null"), "c").or_throw(), config);
}

}  // namespace
}  // namespace trireme::checkpoint
