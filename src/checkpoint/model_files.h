#pragma once

// What lies beside config.json and the weights in a Hugging Face folder, and comes out of an export as it went in: the
// tokenizer's files and the settings of generation. A checkpoint carries them.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/env.h"
#include "base/json.h"
#include "checkpoint/manifest.h"

namespace trireme::checkpoint {

struct ModelFile {
  std::string name;
  std::string content;
  friend bool operator==(const ModelFile&, const ModelFile&) = default;
};

// A model's folder without its weights.
struct ModelDescription {
  Json config = nullptr;  // config.json as it came; null: as model::to_hugging_face writes the model
  std::vector<ModelFile> files = {};
};

// By name: a file of a tokenizer (tokenizer.json, vocab.json, chat_template.jinja, ...) or generation_config.json.
bool is_carried(std::string_view name);
// Of the first of these paths (folders, files in them, or "") that has a tokenizer the tokenizer's files, and of the
// first that has a generation_config.json that one; by name.
std::vector<ModelFile> find_model_files(Env& env, const std::vector<std::string>& paths);

// Into an existing directory, each synced and closed; their names are as durable as the directory. What the manifest
// then says of them.
std::vector<StoredModelFile> write_model_files(Env& env, const std::string& directory,
                                               const std::vector<ModelFile>& files);
// Of a checkpoint: Error(kStorage) names one that is missing or not what was written.
std::vector<ModelFile> read_model_files(Env& env, const std::string& directory, const Manifest& manifest);

// What is wrong with one, in a sentence; `whole` reads it, else its size alone is compared.
std::optional<std::string> model_file_damage(Env& env, const std::string& directory, const StoredModelFile& stored,
                                             bool whole);

}  // namespace trireme::checkpoint
