#include "checkpoint/hugging_face.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "checkpoint/model_weights.h"
#include "checkpoint/safetensors_writer.h"
#include "checkpoint/shard.h"
#include "checkpoint/store.h"
#include "model/parameters.h"
#include "plan/memory.h"

namespace trireme::checkpoint {
namespace {

constexpr const char* kConfigFile = "config.json";
constexpr const char* kTokenizerFile = "tokenizer.json";

// As config.json names it.
std::string_view type_name(DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return "bfloat16";
    case DType::kF16:
      return "float16";
    default:
      return "float32";
  }
}

std::string file_name(std::size_t index, std::size_t files) {
  return files == 1 ? kSafetensorsFile : fmt::format("model-{:05}-of-{:05}.safetensors", index + 1, files);
}

// What an export writes, or another's shards that would be taken for a part of it.
bool is_model_file(const std::string& name) {
  return is_carried(name) || name == kConfigFile || name == kSafetensorsFile || name == kSafetensorsIndexFile ||
         (name.starts_with("model-") && name.ends_with(".safetensors"));
}

void refuse_existing(Env& env, const std::string& directory) {
  if (!env.exists(directory)) return;
  if (!env.is_directory(directory)) {
    throw Error(Failure{directory, "", "is a file; a model is written into a directory", "name a new directory"});
  }
  for (const std::string& name : env.list_directory(directory)) {
    if (!is_model_file(name)) continue;
    throw Error(Failure{join_path(directory, name), "", "is there already, and nothing is written over",
                        "name a new directory, or remove the model that is in this one"});
  }
}

// The weights of a model's parameters, in the model's order.
std::vector<const StoredState*> weights_of(const Manifest& manifest, const model::ParameterTable& table,
                                           const std::string& path) {
  std::vector<const StoredState*> weights;
  for (const model::Parameter& parameter : table.parameters) {
    const StoredState* weight = manifest.find(parameter.name, plan::StateKind::kWeight);
    if (weight == nullptr || weight->shape != parameter.shape) {
      throw Error(Failure{path, "",
                          fmt::format("{} is {}, though the manifest's model has it", parameter.name,
                                      weight == nullptr ? "missing" : "of another shape"),
                          "", ExitCode::kStorage});
    }
    weights.push_back(weight);
  }
  return weights;
}

// Files of at most shard_size, in order, each of at least one tensor.
using Group = std::vector<const StoredState*>;
std::vector<Group> groups_of(const std::vector<const StoredState*>& weights, const ExportOptions& options) {
  std::vector<Group> groups(1);
  std::int64_t room = options.shard_size.count;
  for (const StoredState* weight : weights) {
    const std::int64_t bytes = weight->rows() * weight->columns() * dtype_size(options.dtype);
    if (options.shard_size.count > 0 && bytes > room && !groups.back().empty()) {
      groups.emplace_back();
      room = options.shard_size.count;
    }
    groups.back().push_back(weight);
    room -= bytes;
  }
  return groups;
}

// The magnitude from which on rounding to the type gives infinity: half a step beyond its largest number.
float rounds_to_infinity(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return 65520.0F;
    case DType::kBF16:
      return 0x1.FFp127F;
    default:
      return std::numeric_limits<float>::infinity();
  }
}

void check_values(const std::string& name, std::span<const float> values, DType dtype) {
  const float beyond = rounds_to_infinity(dtype);
  for (const float value : values) {
    if (std::abs(value) < beyond) continue;
    if (!std::isfinite(value)) {
      throw Error(ExitCode::kDiverged, "checkpoint", "export", fmt::format("{} is not finite", name),
                  "export an earlier checkpoint");
    }
    throw Error(Failure{.option = "dtype",
                        .value = std::string(plan::precision_name(dtype)),
                        .rule = fmt::format("{} holds {}, which is beyond its range", name, value),
                        .nearest = dtype == DType::kF16 ? "bf16, fp32" : "fp32"});
  }
}

// Files that go again unless all are written.
class NewFiles {
 public:
  NewFiles(Env& env, std::string directory) : env_(env), directory_(std::move(directory)) {}
  NewFiles(const NewFiles&) = delete;
  NewFiles& operator=(const NewFiles&) = delete;
  ~NewFiles() {
    for (const std::string& name : names_) {
      try {
        if (!kept_) env_.remove_file(path_of(name));
      } catch (const std::exception&) {
        // It was not written; or the failure that brought us here is the one to report.
      }
    }
  }
  std::string path_of(const std::string& name) const { return join_path(directory_, name); }
  // Before it is written: a failure may come after it has its name.
  void add(const std::string& name) { names_.push_back(name); }
  void write(const std::string& name, const std::string& text) {
    add(name);
    env_.write_file_atomically(path_of(name), text);
  }
  std::vector<std::string> keep() {
    kept_ = true;
    return names_;
  }

 private:
  Env& env_;
  std::string directory_;
  std::vector<std::string> names_;
  bool kept_ = false;
};

// Writes tensors one by one.
class WeightExport {
 public:
  WeightExport(const Reader& checkpoint, const ExportOptions& options, Bytes total)
      : checkpoint_(checkpoint),
        options_(options),
        total_(total),
        buffer_(static_cast<std::size_t>(checkpoint.largest_slice().count)) {}

  void write_file(Env& env, const std::string& path, const Group& group) {
    std::vector<TensorSpec> specs;
    for (const StoredState* weight : group) specs.push_back({weight->name, options_.dtype, weight->shape});
    SafetensorsWriter writer(env, path, std::move(specs));
    for (const StoredState* weight : group) {
      const plan::TensorBox whole{{0, weight->rows()}, {0, weight->columns()}};
      values_.resize(static_cast<std::size_t>(whole.elements()));
      checkpoint_.read_box(*weight, whole, buffer_, values_);
      check_values(weight->name, values_, options_.dtype);
      writer.write_floats(weight->name, values_);
      done_ += Bytes{whole.elements() * dtype_size(options_.dtype)};
      if (options_.progress) options_.progress(done_, total_);
    }
    writer.finish();
  }

 private:
  const Reader& checkpoint_;
  const ExportOptions& options_;
  Bytes total_;
  Bytes done_;
  std::vector<std::byte> buffer_;  // one slice
  std::vector<float> values_;      // one tensor
};

std::string index_text(const std::vector<Group>& groups, const ExportReport& report) {
  std::map<std::string, std::string> files;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    for (const StoredState* weight : groups[i]) files[weight->name] = file_name(i, groups.size());
  }
  Json map = Json::object();
  for (const auto& [name, file] : files) map[name] = file;
  const Json metadata = Json::object({{"total_parameters", report.parameters}, {"total_size", report.bytes.count}});
  return Json::object({{"metadata", metadata}, {"weight_map", std::move(map)}}).dump(2) + "\n";
}

}  // namespace

std::string hugging_face_config(Json document, const model::Config& config, DType dtype) {
  constexpr std::string_view kClass = "architectures";
  const Json plain = model::to_hugging_face(config);
  if (document.is_null()) document = plain;
  if (document.find(kClass) == nullptr) document[kClass] = *plain.find(kClass);
  // transformers 4 says torch_dtype, 5 says dtype, and both read either.
  const bool has_new_name = document.find("dtype") != nullptr;
  if (has_new_name) document["dtype"] = type_name(dtype);
  if (!has_new_name || document.find("torch_dtype") != nullptr) document["torch_dtype"] = type_name(dtype);
  return document.dump(2) + "\n";
}

std::string refused_elsewhere(const model::Config& config) {
  if (config.family != model::Family::kLlama || config.hidden % config.heads == 0) return "";
  return fmt::format(
      "transformers from version 5 on refuses a llama whose hidden_size ({}) is no multiple of num_attention_heads "
      "({}), "
      "though head_dim is given; version 4 loads it",
      config.hidden, config.heads);
}

ExportReport export_hugging_face(Env& env, const Reader& checkpoint, const std::string& directory,
                                 const ExportOptions& options) {
  TRIREME_CHECK(converts_to_f32(options.dtype), "export as {}", dtype_name(options.dtype));
  const std::string manifest_path = join_path(checkpoint.directory(), kManifestFile);
  const model::Config config = model::parse_config(checkpoint.manifest().model, manifest_path).or_throw();
  const model::ParameterTable table = model::make_parameter_table(config);
  const std::vector<const StoredState*> weights = weights_of(checkpoint.manifest(), table, manifest_path);
  refuse_existing(env, directory);
  std::vector<ModelFile> carried = read_model_files(env, checkpoint.directory(), checkpoint.manifest());
  if (!options.tokenizer.empty()) {
    std::erase_if(carried, [](const ModelFile& file) { return file.name == kTokenizerFile; });
    carried.push_back({kTokenizerFile, env.read_file(options.tokenizer)});
  }

  ExportReport report;
  report.warning = refused_elsewhere(config);
  report.parameters = table.total();
  report.bytes = Bytes{report.parameters} * dtype_size(options.dtype);
  env.make_directories(directory);
  NewFiles files(env, directory);
  const std::vector<Group> groups = groups_of(weights, options);
  WeightExport writer(checkpoint, options, report.bytes);
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const std::string name = file_name(i, groups.size());
    files.add(name);
    writer.write_file(env, files.path_of(name), groups[i]);
  }
  if (groups.size() > 1) files.write(kSafetensorsIndexFile, index_text(groups, report));
  for (const ModelFile& file : carried) files.write(file.name, file.content);
  files.write(kConfigFile, hugging_face_config(checkpoint.manifest().model, config, options.dtype));
  report.files = files.keep();
  return report;
}

namespace {

// Values of one slice after another.
class WeightImport {
 public:
  WeightImport(const ModelWeights& weights, const model::ParameterTable& table)
      : weights_(weights),
        parameters_(table.parameters.size()),
        values_(static_cast<std::size_t>(plan::largest_tile(table))),
        zeros_(values_) {}

  std::span<const std::byte> values_of(const ShardSlice& slice) {
    const auto elements = static_cast<std::size_t>(slice.box.elements());
    const auto tensor = static_cast<std::size_t>(slice.tensor);
    if (tensor >= parameters_) return std::as_bytes(std::span(zeros_).first(elements));  // a moment
    const std::span<float> values = std::span(values_).first(elements);
    weights_.read_box(tensor, slice.box.rows, slice.box.columns, values);
    return std::as_bytes(values);
  }

 private:
  const ModelWeights& weights_;
  std::size_t parameters_;
  std::vector<float> values_;
  std::vector<float> zeros_;
};

Manifest empty_manifest(Env& env, const model::ParameterTable& table, Json model, const ImportOptions& options) {
  Manifest manifest;
  manifest.reason = "import";
  manifest.saved_at = env.wall_time();
  manifest.program = options.program;
  manifest.layout = plan::describe(plan::Layout{});
  manifest.model = std::move(model);
  manifest.tensors = states_of(table);
  return manifest;
}

}  // namespace

std::string import_hugging_face(Env& env, const std::string& folder, const std::string& directory,
                                const ImportOptions& options) {
  TRIREME_CHECK_GE(options.slices_a_file, 1);
  const model::ParameterTable table = model::make_parameter_table(model::load_config(env, folder).or_throw());
  const ModelWeights weights = ModelWeights::open(env, folder, table).or_throw();
  WeightImport source(weights, table);
  Store store(env, directory);
  if (env.exists(store.path_of(0))) {
    throw Error(Failure{store.path_of(0), "", "is there already, and nothing is written over", "name a new directory"});
  }
  Manifest manifest = empty_manifest(env, table, model::load_config_document(env, folder).or_throw(), options);
  const std::vector<ShardSlice> slices = slices_of_rank(table, plan::Layout{}, 0);  // as one rank would write them
  const Bytes total = Bytes{table.total()} * (dtype_size(DType::kF32) * std::ssize(plan::kStateKinds));
  Bytes done;
  try {
    store.begin(0);
    for (std::int64_t first = 0; first < std::ssize(slices); first += options.slices_a_file) {
      const std::int64_t end = std::min(first + options.slices_a_file, std::ssize(slices));
      const std::vector<ShardSlice> part(slices.begin() + first, slices.begin() + end);
      const std::string path =
          join_path(store.partial_path_of(0), shard_name(static_cast<int>(first / options.slices_a_file)));
      const ShardRecord record = write_shard(env, path, manifest.tensors, part, [&](std::size_t index) {
        const std::span<const std::byte> bytes = source.values_of(part[index]);
        done += Bytes{std::ssize(bytes)};
        if (options.progress) options.progress(done, total);
        return bytes;
      });
      add_shards(manifest, {part}, {record});
    }
    manifest.model_files = write_model_files(env, store.partial_path_of(0), find_model_files(env, {folder}));
    store.commit(0, manifest);
  } catch (...) {
    store.abandon(0);
    throw;
  }
  return store.path_of(0);
}

}  // namespace trireme::checkpoint
