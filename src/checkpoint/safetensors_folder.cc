#include "checkpoint/safetensors_folder.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"

namespace trireme::checkpoint {
namespace {

constexpr std::string_view kEnd = ".safetensors";
constexpr const char* kConvert = "save_pretrained of Python's transformers writes safetensors";

Failure refused(const std::string& directory, std::string rule, std::string nearest) {
  return {directory, "", std::move(rule), std::move(nearest), ExitCode::kStorage};
}

// "model-00002-of-00005.safetensors".
struct ShardName {
  std::string stem;
  int number = 0;
  int count = 0;
};
std::optional<ShardName> shard_of(std::string_view name) {
  constexpr std::string_view kOf = "-of-";
  name.remove_suffix(kEnd.size());
  const std::size_t of = name.rfind(kOf);
  if (of == std::string_view::npos) return std::nullopt;
  const std::size_t dash = name.rfind('-', of - 1);
  if (of == 0 || dash == std::string_view::npos) return std::nullopt;
  ShardName shard{.stem = std::string(name.substr(0, dash))};
  const auto read = [](std::string_view digits, int& number) {
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    return error == std::errc() && end == digits.data() + digits.size() && number > 0;
  };
  if (!read(name.substr(dash + 1, of - dash - 1), shard.number)) return std::nullopt;
  return read(name.substr(of + kOf.size()), shard.count) ? std::optional(shard) : std::nullopt;
}

// Files that are the shards of one model, all of them.
Status check_shards(const std::string& directory, const std::vector<std::string>& names) {
  std::vector<int> there;
  const std::optional<ShardName> first = shard_of(names.front());
  for (const std::string& name : names) {
    const std::optional<ShardName> shard = shard_of(name);
    if (!first || !shard || shard->stem != first->stem || shard->count != first->count) {
      return refused(
          directory,
          fmt::format("holds several safetensors and no {}: {}", kSafetensorsIndexFile, fmt::join(names, ", ")),
          "name the file that is meant");
    }
    there.push_back(shard->number);
  }
  std::vector<std::string> missing;
  for (int number = 1; number <= first->count; ++number) {
    if (std::ranges::count(there, number) == 0) missing.push_back(fmt::format("{}", number));
  }
  if (missing.empty()) return ok_status();
  constexpr std::size_t kTold = 8;
  const bool more = missing.size() > kTold;
  missing.resize(std::min(missing.size(), kTold));
  return refused(directory,
                 fmt::format("shards {}{} of {} are not there: {} is", fmt::join(missing, ", "), more ? ", ..." : "",
                             first->count, names.front()),
                 "download or copy them too");
}

// A folder without safetensors: what it has instead.
Failure nothing_in(const std::string& directory, const std::vector<std::string>& names) {
  const struct {
    std::string_view end;
    const char* what;
  } others[] = {{".bin", "a pickle of PyTorch"},   {".pt", "a pickle of PyTorch"}, {".pth", "a pickle of PyTorch"},
                {".ckpt", "a pickle of PyTorch"},  {".gguf", "a GGUF file"},       {".h5", "an HDF5 file"},
                {".msgpack", "a MessagePack file"}};
  for (const std::string& name : names) {
    for (const auto& other : others) {
      if (!name.ends_with(other.end)) continue;
      return refused(directory, fmt::format("has no safetensors: {} is {}, which is not read", name, other.what),
                     kConvert);
    }
  }
  const bool run = std::ranges::count(names, "run.toml") > 0 && std::ranges::count(names, "model") > 0;
  return refused(directory, fmt::format("has neither {} nor {}", kSafetensorsFile, kSafetensorsIndexFile),
                 run ? fmt::format("the run's model is in {}", join_path(directory, "model")) : "");
}

}  // namespace

Result<SafetensorsFolder> safetensors_in(Env& env, const std::string& directory) {
  const auto path_of = [&](std::string_view name) { return join_path(directory, name); };
  if (env.exists(path_of(kSafetensorsFile)))
    return SafetensorsFolder{.index = "", .files = {path_of(kSafetensorsFile)}};
  if (env.exists(path_of(kSafetensorsIndexFile))) {
    return SafetensorsFolder{.index = path_of(kSafetensorsIndexFile), .files = {}};
  }
  const std::vector<std::string> names = env.list_directory(directory);
  if (std::ranges::count(names, kManifestFile) > 0) {
    return refused(directory, "is a checkpoint of a run, not weights in Hugging Face's format",
                   "--resume starts from it; trireme checkpoint export writes such weights");
  }
  std::vector<std::string> candidates;
  for (const std::string& name : names) {
    if (name.ends_with(kEnd) && name.size() > kEnd.size()) candidates.push_back(name);
  }
  if (candidates.empty()) return nothing_in(directory, names);
  if (candidates.size() > 1 || shard_of(candidates.front())) {
    if (Status status = check_shards(directory, candidates); !status.ok()) return status.failure();
  }
  SafetensorsFolder folder;
  for (const std::string& name : candidates) folder.files.push_back(path_of(name));
  return folder;
}

}  // namespace trireme::checkpoint
