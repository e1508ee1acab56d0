#include "checkpoint/hugging_face.h"

#include <limits>

#include <gmock/gmock.h>

#include "base/fake_env.h"
#include "checkpoint/find.h"
#include "checkpoint/safetensors_writer.h"
#include "checkpoint/shard.h"
#include "checkpoint/store.h"
#include "model/parameters.h"
#include "model/test_configs.h"

namespace trireme::checkpoint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Of a parameter's element; exact in BF16 and F16.
float value_at(std::size_t parameter, std::int64_t element) {
  return 0.25F * static_cast<float>((static_cast<std::int64_t>(parameter) * 7 + element) % 61 - 30);
}

std::vector<float> values_of(const model::ParameterTable& table, std::size_t parameter) {
  std::vector<float> values(static_cast<std::size_t>(table.parameters[parameter].elements()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = value_at(parameter, static_cast<std::int64_t>(i));
  return values;
}

// A tensor more than the model has, or another name or shape for one.
struct FolderOptions {
  DType dtype = DType::kF32;
  std::string dropped_prefix = {};
  std::vector<TensorSpec> more = {};
  std::vector<float> more_values = {};  // of each of them, or ones
  std::string left_out = {};
};

void put_folder(FakeEnv& env, const std::string& folder, const model::Config& config, const FolderOptions& how = {}) {
  const model::ParameterTable table = model::make_parameter_table(config);
  env.put_file(join_path(folder, "config.json"), model::to_hugging_face(config).dump());
  std::vector<TensorSpec> specs;
  const auto name_of = [&](const model::Parameter& parameter) {
    return parameter.name.starts_with(how.dropped_prefix) ? parameter.name.substr(how.dropped_prefix.size())
                                                          : parameter.name;
  };
  for (const model::Parameter& parameter : table.parameters) {
    if (parameter.name != how.left_out) specs.push_back({name_of(parameter), how.dtype, parameter.shape});
  }
  specs.insert(specs.end(), how.more.begin(), how.more.end());
  SafetensorsWriter writer(env, join_path(folder, kSafetensorsFile), specs);
  for (std::size_t p = 0; p < table.parameters.size(); ++p) {
    if (table.parameters[p].name == how.left_out) continue;
    writer.write_floats(name_of(table.parameters[p]), values_of(table, p));
  }
  for (const TensorSpec& spec : how.more) {
    std::int64_t elements = 1;
    for (const std::int64_t size : spec.shape) elements *= size;
    std::vector<float> values = how.more_values;
    values.resize(static_cast<std::size_t>(elements), 1.0F);
    writer.write_floats(spec.name, values);
  }
  writer.finish();
}

std::vector<float> whole(const Reader& reader, const StoredState& tensor) {
  std::vector<std::byte> buffer(static_cast<std::size_t>(reader.largest_slice().count));
  std::vector<float> values(static_cast<std::size_t>(tensor.rows() * tensor.columns()));
  reader.read_box(tensor, {{0, tensor.rows()}, {0, tensor.columns()}}, buffer, values);
  return values;
}

void expect_imported(Env& env, const std::string& directory, const model::Config& config) {
  const Reader reader = Reader::open(env, directory).or_throw();
  const model::ParameterTable table = model::make_parameter_table(config);
  const Manifest& manifest = reader.manifest();
  ASSERT_EQ(manifest.tensors.size(), 3 * table.parameters.size());
  for (std::size_t p = 0; p < table.parameters.size(); ++p) {
    const std::string& name = table.parameters[p].name;
    EXPECT_EQ(whole(reader, *manifest.find(name, plan::StateKind::kWeight)), values_of(table, p)) << name;
    const std::vector<float> zeros(static_cast<std::size_t>(table.parameters[p].elements()));
    EXPECT_EQ(whole(reader, *manifest.find(name, plan::StateKind::kFirstMoment)), zeros) << name;
    EXPECT_EQ(whole(reader, *manifest.find(name, plan::StateKind::kSecondMoment)), zeros) << name;
  }
  EXPECT_EQ(manifest.progress, Progress{});
  EXPECT_EQ(manifest.reason, "import");
  EXPECT_EQ(manifest.run, Json::object());
  EXPECT_EQ(manifest.data, Json::object());
  EXPECT_EQ(model::parse_config(manifest.model, "manifest").value(), config);
  EXPECT_THAT(damages_of(env, directory), testing::IsEmpty());
}

std::string import_error(FakeEnv& env, ExitCode code) {
  try {
    import_hugging_face(env, "hf", "start");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    EXPECT_FALSE(env.exists("start/step-00000000"));
    EXPECT_FALSE(env.exists("start/step-00000000.partial"));
    return error.what();
  }
  ADD_FAILURE() << "was imported";
  return "";
}

TEST(HuggingFace, AFolderBecomesACheckpointAtStepZero) {
  for (const model::Config& config : {model::small_gpt2(), model::small_llama()}) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      FakeEnv env;
      put_folder(env, "hf", config, {.dtype = dtype});
      EXPECT_EQ(import_hugging_face(env, "hf", "start"), "start/step-00000000");
      expect_imported(env, "start/step-00000000", config);
    }
  }
}

TEST(HuggingFace, AnImportIsCutIntoFilesAndTellsItsProgress) {
  FakeEnv env;
  put_folder(env, "hf", model::small_llama());
  std::vector<std::int64_t> told;
  std::int64_t total = 0;
  import_hugging_face(env, "hf", "start", {.slices_a_file = 10, .progress = [&](Bytes done, Bytes of) {
                                             told.push_back(done.count);
                                             total = of.count;
                                           }});
  expect_imported(env, "start/step-00000000", model::small_llama());
  const Manifest manifest = Reader::open_manifest(env, "start/step-00000000").value();
  EXPECT_EQ(manifest.files.size(), 7U);  // 21 parameters of one tile each, three states
  EXPECT_EQ(told.size(), 63U);
  EXPECT_EQ(told.back(), total);
  EXPECT_EQ(total, 12 * model::make_parameter_table(model::small_llama()).total());
}

TEST(HuggingFace, WideTensorsAreReadTileByTile) {
  FakeEnv env;
  model::Config config = model::small_llama();
  config.ffn = 2500;
  put_folder(env, "hf", config);
  import_hugging_face(env, "hf", "start");
  expect_imported(env, "start/step-00000000", config);
  const Manifest manifest = Reader::open_manifest(env, "start/step-00000000").value();
  EXPECT_EQ(manifest.find("model.layers.0.mlp.down_proj.weight", plan::StateKind::kWeight)->slices.size(), 3U);
}

TEST(HuggingFace, FilesOfTheBareBaseModelAndOldBuffersAreRead) {
  FakeEnv env;
  put_folder(env, "hf", model::small_gpt2(),
             {.dropped_prefix = "transformer.",
              .more = {{"h.0.attn.bias", DType::kF32, {1, 1, 32, 32}},
                       {"h.1.attn.masked_bias", DType::kF32, {1}},
                       {"lm_head.weight", DType::kF32, {53, 24}}},
              .more_values = values_of(model::make_parameter_table(model::small_gpt2()), 0)});
  import_hugging_face(env, "hf", "start");
  expect_imported(env, "start/step-00000000", model::small_gpt2());
}

TEST(HuggingFace, AnImportNamesWhatDoesNotFitTheModel) {
  const model::Config llama = model::small_llama();
  FakeEnv env;
  EXPECT_THAT(import_error(env, ExitCode::kUsage), HasSubstr("hf"));
  put_folder(env, "hf", llama, {.left_out = "model.norm.weight"});
  EXPECT_THAT(import_error(env, ExitCode::kUsage), HasSubstr("there is no tensor model.norm.weight"));
  put_folder(env, "hf", llama, {.more = {{"model.norm.weight", DType::kF32, {15}}}, .left_out = "model.norm.weight"});
  EXPECT_THAT(import_error(env, ExitCode::kUsage), HasSubstr("model.norm.weight has shape [15], the model needs [16]"));
  put_folder(env, "hf", llama, {.more = {{"score.weight", DType::kF32, {2}}}});
  EXPECT_THAT(import_error(env, ExitCode::kUsage), HasSubstr("score.weight is no tensor of this model"));
  env.remove_file("hf/model.safetensors");
  EXPECT_THAT(import_error(env, ExitCode::kUsage), HasSubstr("has neither model.safetensors"));
}

TEST(HuggingFace, ACheckpointThatIsThereIsNotImportedOver) {
  FakeEnv env;
  put_folder(env, "hf", model::small_llama());
  import_hugging_face(env, "hf", "start");
  const std::string before = env.content("start/step-00000000/manifest.json");
  EXPECT_THROW(import_hugging_face(env, "hf", "start"), Error);
  EXPECT_EQ(env.content("start/step-00000000/manifest.json"), before);
}

TEST(HuggingFace, AnImportThatFailsAnywhereLeavesNoCheckpointOrAWholeOne) {
  FakeEnv counted;
  put_folder(counted, "hf", model::small_llama());
  counted.fail_operation(0);
  import_hugging_face(counted, "hf", "start", {.slices_a_file = 30});
  const std::int64_t operations = counted.operations();
  for (std::int64_t n = 1; n <= operations; ++n) {
    FakeEnv env;
    put_folder(env, "hf", model::small_llama());
    env.fail_operation(n);
    try {
      import_hugging_face(env, "hf", "start", {.slices_a_file = 30});
    } catch (const Error&) {
      env.fail_operation(0);
      if (!env.exists("start/step-00000000")) {
        EXPECT_FALSE(env.exists("start/step-00000000.partial")) << n;
        import_hugging_face(env, "hf", "start");
      }
    }
    env.fail_operation(0);
    expect_imported(env, "start/step-00000000", model::small_llama());
  }
}

TEST(HuggingFace, AFullDiskEndsAnImport) {
  FakeEnv env;
  put_folder(env, "hf", model::small_llama());
  env.limit_bytes(60'000);
  EXPECT_THAT(import_error(env, ExitCode::kStorage), HasSubstr("No space left on device"));
}

// A run's checkpoint on another layout: any weights, moments that an export must not touch.
class Exports : public testing::Test {
 protected:
  void put(const model::Config& config) {
    put_folder(env_, "hf", config);
    import_hugging_face(env_, "hf", "start");
  }
  // The first weight of a tensor becomes `value`.
  void put_with(const model::Config& config, float value) {
    const model::ParameterTable table = model::make_parameter_table(config);
    Manifest manifest;
    manifest.model = model::to_hugging_face(config);
    manifest.tensors = states_of(table);
    std::vector<ShardSlice> slices;
    for (std::size_t t = 0; t < manifest.tensors.size(); ++t) {
      const StoredState& tensor = manifest.tensors[t];
      slices.push_back({static_cast<int>(t), {{0, tensor.rows()}, {0, tensor.columns()}}});
    }
    Store store(env_, "start");
    store.begin(0);
    std::vector<float> values;
    const ShardRecord record = write_shard(env_, join_path(store.partial_path_of(0), shard_name(0)), manifest.tensors,
                                           slices, [&](std::size_t i) {
                                             values.assign(static_cast<std::size_t>(slices[i].box.elements()), 1.0F);
                                             if (i == 1) values[0] = value;
                                             return std::as_bytes(std::span<const float>(values));
                                           });
    add_shards(manifest, {slices}, {record});
    store.commit(0, manifest);
  }
  ExportReport do_export(const ExportOptions& options = {}) {
    const Reader reader = Reader::open(env_, "start/step-00000000").or_throw();
    return export_hugging_face(env_, reader, "out", options);
  }
  std::string export_error(const ExportOptions& options, ExitCode code) {
    try {
      do_export(options);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      return error.what();
    }
    ADD_FAILURE() << "was exported";
    return "";
  }
  std::vector<std::string> out_files() { return env_.list_directory("out"); }

  FakeEnv env_;
};

TEST_F(Exports, OneFileHoldsTheModel) {
  for (const model::Config& config : {model::small_gpt2(), model::small_llama()}) {
    env_.lose_power(1);
    put(config);
    const ExportReport report = do_export();
    EXPECT_THAT(report.files, ElementsAre("model.safetensors", "config.json"));
    EXPECT_THAT(out_files(), ElementsAre("config.json", "model.safetensors"));
    EXPECT_EQ(model::load_config(env_, "out").value(), config);
    const SafetensorsReader file = SafetensorsReader::open(env_, "out").or_throw();
    const model::ParameterTable table = model::make_parameter_table(config);
    EXPECT_EQ(report.parameters, table.total());
    ASSERT_EQ(file.tensors().size(), table.parameters.size());
    for (std::size_t p = 0; p < table.parameters.size(); ++p) {
      std::vector<float> values(static_cast<std::size_t>(table.parameters[p].elements()));
      file.read_all(table.parameters[p].name, values);
      EXPECT_EQ(values, values_of(table, p));
    }
    EXPECT_THAT(env_.content("out/config.json"), HasSubstr("\"torch_dtype\": \"float32\""));
    for (const std::string& name : out_files()) env_.remove_file("out/" + name);
    for (const std::string& name : env_.list_directory("start/step-00000000")) {
      env_.remove_file("start/step-00000000/" + name);
    }
    env_.remove_directory("start/step-00000000");
  }
}

TEST_F(Exports, ShardsAreOfAtMostTheSizeAskedForAndIndexed) {
  put(model::small_llama());
  std::int64_t told = 0;
  const ExportReport report =
      do_export({.shard_size = Bytes{2000}, .dtype = DType::kBF16, .progress = [&](Bytes done, Bytes total) {
                   told = done.count;
                   EXPECT_LE(done, total);
                 }});
  EXPECT_EQ(told, report.bytes.count);
  const SafetensorsReader file = SafetensorsReader::open(env_, "out").or_throw();  // through the index
  ASSERT_GT(file.files().size(), 2U);
  EXPECT_EQ(report.files.size(), file.files().size() + 2);
  std::vector<std::int64_t> bytes(file.files().size()), tensors(bytes);
  for (const StoredTensor& tensor : file.tensors()) {
    bytes[tensor.file] += tensor.bytes();
    tensors[tensor.file] += 1;
    EXPECT_EQ(tensor.dtype, DType::kBF16);
  }
  for (std::size_t i = 0; i < bytes.size(); ++i) EXPECT_TRUE(bytes[i] <= 2000 || tensors[i] == 1) << i;
  const Json index = parse_json(env_.content("out/model.safetensors.index.json"), "index").value();
  EXPECT_EQ(index.find("metadata")->find("total_size")->as_integer(), report.bytes.count);
  EXPECT_EQ(index.find("weight_map")->as_object().size(), 21U);
  import_hugging_face(env_, "out", "again");
  expect_imported(env_, "again/step-00000000", model::small_llama());
}

TEST_F(Exports, ATokenizerIsPutBesideTheModel) {
  put(model::small_llama());
  env_.put_file("data/tok.json", "{\"version\": \"1.0\"}");
  EXPECT_THAT(do_export({.tokenizer = "data/tok.json"}).files,
              ElementsAre("model.safetensors", "tokenizer.json", "config.json"));
  EXPECT_EQ(env_.content("out/tokenizer.json"), "{\"version\": \"1.0\"}");
}

TEST_F(Exports, NothingIsWrittenOverAndOtherFilesStay) {
  put(model::small_llama());
  env_.put_file("out/notes.txt", "mine");
  do_export();
  EXPECT_EQ(env_.content("out/notes.txt"), "mine");
  const std::string before = env_.content("out/model.safetensors");
  EXPECT_THAT(export_error({.dtype = DType::kBF16}, ExitCode::kUsage), HasSubstr("out/config.json: is there already"));
  EXPECT_EQ(env_.content("out/model.safetensors"), before);
  env_.remove_file("out/config.json");
  env_.rename("out/model.safetensors", "out/model-00001-of-00002.safetensors");
  EXPECT_THAT(export_error({}, ExitCode::kUsage), HasSubstr("model-00001-of-00002.safetensors: is there already"));
}

TEST_F(Exports, AFileInThePlaceOfTheDirectoryIsRefused) {
  put(model::small_llama());
  env_.put_file("out", "a file");
  EXPECT_THAT(export_error({}, ExitCode::kUsage), HasSubstr("out: is a file"));
}

TEST_F(Exports, WeightsThatAreNotFiniteLeaveNoFile) {
  put_with(model::small_llama(), std::numeric_limits<float>::quiet_NaN());
  EXPECT_THAT(export_error({}, ExitCode::kDiverged), HasSubstr("is not finite"));
  EXPECT_THAT(out_files(), ElementsAre());
}

TEST_F(Exports, ValuesBeyondTheTypesRangeAreNotMadeInfinite) {
  put_with(model::small_llama(), 65520.0F);
  EXPECT_THAT(export_error({.shard_size = Bytes{1}, .dtype = DType::kF16}, ExitCode::kUsage),
              HasSubstr("dtype = fp16: model.layers.0.input_layernorm.weight holds 65520, which is beyond its range"));
  EXPECT_THAT(out_files(), ElementsAre());  // the first shard went again
  do_export({.dtype = DType::kBF16});
}

TEST_F(Exports, TheLargestNumbersOfATypeAreWritten) {
  put_with(model::small_llama(), 65519.0F);
  do_export({.dtype = DType::kF16});
}

TEST_F(Exports, NoNumberRoundsToInfinityInBf16) {
  put_with(model::small_llama(), std::numeric_limits<float>::max());
  EXPECT_THAT(export_error({.dtype = DType::kBF16}, ExitCode::kUsage), HasSubstr("beyond its range"));
  do_export();
}

TEST_F(Exports, AnExportThatFailsLeavesNoFile) {
  put(model::small_llama());
  env_.fail_operation(0);
  do_export({.shard_size = Bytes{4000}});
  const std::int64_t operations = env_.operations();
  for (std::int64_t n = 1; n <= operations; ++n) {
    for (const std::string& name : out_files()) env_.remove_file("out/" + name);
    env_.fail_operation(n);
    try {
      do_export({.shard_size = Bytes{4000}});
    } catch (const Error&) {
      EXPECT_THAT(out_files(), ElementsAre()) << n;
    }
    env_.fail_operation(0);
  }
}

TEST_F(Exports, ADamagedWeightIsNotExported) {
  put(model::small_llama());
  std::string part = env_.content("start/step-00000000/part-00000.safetensors");
  const std::size_t at = part.find("}}") + 200;
  part[at] = static_cast<char>(part[at] ^ 1);
  env_.put_file("start/step-00000000/part-00000.safetensors", part);
  EXPECT_THAT(export_error({}, ExitCode::kStorage), HasSubstr("checksum"));
  EXPECT_THAT(out_files(), ElementsAre());
}

TEST_F(Exports, AManifestWhoseModelHasOtherTensorsIsRefused) {
  put(model::small_llama());
  Manifest manifest = Reader::open_manifest(env_, "start/step-00000000").value();
  model::Config config = model::small_llama();
  config.layers = 3;
  manifest.model = model::to_hugging_face(config);
  env_.put_file("start/step-00000000/manifest.json", to_text(manifest));
  EXPECT_THAT(export_error({}, ExitCode::kStorage), HasSubstr("model.layers.2.input_layernorm.weight is missing"));
}

}  // namespace
}  // namespace trireme::checkpoint
