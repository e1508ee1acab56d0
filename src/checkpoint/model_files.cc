#include "checkpoint/model_files.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "checkpoint/checksum.h"

namespace trireme::checkpoint {
namespace {

using Name = std::string_view;

constexpr Name kGenerationFile = "generation_config.json";
constexpr std::array kTokenizerFiles =
    std::to_array<Name>({"added_tokens.json", "merges.txt", "sentencepiece.bpe.model", "special_tokens_map.json",
                         "spiece.model", "tekken.json", "vocab.json", "vocab.txt"});
// tokenizer.json, tokenizer_config.json, tokenizer.model, tokenizer.model.v3, chat_template.jinja, ...
constexpr std::array kTokenizerPrefixes = std::to_array<Name>({"chat_template", "tokenizer"});

bool is_tokenizer_file(Name name) {
  if (std::ranges::find(kTokenizerFiles, name) != kTokenizerFiles.end()) return true;
  const bool begins = std::ranges::any_of(kTokenizerPrefixes, [&](Name prefix) { return name.starts_with(prefix); });
  return begins && !name.ends_with(".py");  // code is nobody's data
}

std::string damaged(const std::string& path, const std::string& what) { return fmt::format("{}: {}", path, what); }

}  // namespace

bool is_carried(std::string_view name) { return name == kGenerationFile || is_tokenizer_file(name); }

std::vector<ModelFile> find_model_files(Env& env, const std::vector<std::string>& paths) {
  std::vector<ModelFile> found;
  bool tokenizer = false, generation = false;
  for (const std::string& path : paths) {
    if (path.empty()) continue;
    const std::string folder = env.is_directory(path) ? path : directory_name(path);
    if (!env.is_directory(folder)) continue;
    bool tokenizer_here = false;
    for (const std::string& name : env.list_directory(folder)) {
      const bool taken = name == kGenerationFile ? generation : tokenizer;
      if (!is_carried(name) || taken || env.is_directory(join_path(folder, name))) continue;
      (name == kGenerationFile ? generation : tokenizer_here) = true;
      found.push_back({name, env.read_file(join_path(folder, name))});
    }
    tokenizer |= tokenizer_here;
  }
  std::ranges::sort(found, {}, &ModelFile::name);
  return found;
}

std::vector<StoredModelFile> write_model_files(Env& env, const std::string& directory,
                                               const std::vector<ModelFile>& files) {
  std::vector<StoredModelFile> stored;
  for (const ModelFile& file : files) {
    const std::unique_ptr<Writer> writer = env.create_file(join_path(directory, file.name));
    writer->write_text(file.content);
    writer->sync();
    writer->close();
    stored.push_back({file.name, std::ssize(file.content), checksum_of(file.content)});
  }
  return stored;
}

std::vector<ModelFile> read_model_files(Env& env, const std::string& directory, const Manifest& manifest) {
  std::vector<ModelFile> files;
  for (const StoredModelFile& stored : manifest.model_files) {
    if (const auto damage = model_file_damage(env, directory, stored, true)) {
      throw Error(ExitCode::kStorage, "checkpoint", "read", *damage);
    }
    files.push_back({stored.name, env.read_file(join_path(directory, stored.name))});
  }
  return files;
}

std::optional<std::string> model_file_damage(Env& env, const std::string& directory, const StoredModelFile& stored,
                                             bool whole) {
  const std::string path = join_path(directory, stored.name);
  try {
    if (!env.exists(path)) return damaged(path, fmt::format("missing; expected a file of {} bytes", stored.bytes));
    if (const std::int64_t size = env.file_size(path); size != stored.bytes) {
      return damaged(path, fmt::format("size: expected {} bytes, found {}", stored.bytes, size));
    }
    if (!whole) return std::nullopt;
    const std::string checksum = checksum_of(std::string_view(env.read_file(path)));
    if (checksum == stored.checksum) return std::nullopt;
    return damaged(path, fmt::format("expected checksum {}, found {}", stored.checksum, checksum));
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace trireme::checkpoint
