#include "checkpoint/hugging_face_names.h"

#include <set>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace trireme::checkpoint {
namespace {

constexpr const char* kHint = "the model's config.json must be that of these weights";

// Hugging Face writes the base model's tensors with its prefix or, in files of the bare base model, without.
std::vector<std::string> names_of(const std::string& name) {
  for (std::string_view prefix : {"transformer.", "model."}) {
    if (name.rfind(prefix, 0) == 0) return {name, name.substr(prefix.size())};
  }
  return {name};
}

// Buffers that old files carry beside parameters, and a tied head written out.
bool may_be_left_out(std::string_view name, const model::Config& config) {
  for (std::string_view suffix : {".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq"}) {
    if (name.ends_with(suffix)) return true;
  }
  return config.tied_embeddings && name == "lm_head.weight";
}

}  // namespace

const StoredTensor& stored_tensor(const SafetensorsReader& file, const model::Parameter& parameter,
                                  const std::string& path) {
  for (const std::string& name : names_of(parameter.name)) {
    const StoredTensor* stored = file.find(name);
    if (stored == nullptr) continue;
    if (stored->shape != parameter.shape) {
      throw Error(ExitCode::kUsage, "weights", "read " + path,
                  fmt::format("{} has shape [{}], the model needs [{}]", name, fmt::join(stored->shape, ", "),
                              fmt::join(parameter.shape, ", ")),
                  kHint);
    }
    return *stored;
  }
  throw Error(ExitCode::kUsage, "weights", "read " + path, fmt::format("there is no tensor {}", parameter.name), kHint);
}

void refuse_unknown_tensors(const SafetensorsReader& file, const model::ParameterTable& table,
                            const std::string& path) {
  std::set<std::string> known;
  for (const model::Parameter& parameter : table.parameters) {
    for (const std::string& name : names_of(parameter.name)) known.insert(name);
  }
  for (const StoredTensor& stored : file.tensors()) {
    if (known.count(stored.name) > 0 || may_be_left_out(stored.name, table.config)) continue;
    throw Error(ExitCode::kUsage, "weights", "read " + path, fmt::format("{} is no tensor of this model", stored.name),
                kHint);
  }
}

}  // namespace trireme::checkpoint
