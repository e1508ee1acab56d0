#include "checkpoint/find.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "checkpoint/manifest.h"

namespace trireme::checkpoint {
namespace {

std::optional<FoundCheckpoint> parse_path(std::string path) {
  const std::optional<StoredName> name = parse_stored_name(base_name(path));
  if (!name) return std::nullopt;
  return FoundCheckpoint{.path = std::move(path), .step = name->step, .presence = name->presence};
}

std::string without_last_slash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

}  // namespace

Result<std::vector<FoundCheckpoint>> list_checkpoints(Env& env, const std::string& path) {
  const std::string asked = without_last_slash(path);
  const auto refuse = [&](std::string rule, std::string nearest) {
    return Failure{.option = path, .value = "", .rule = std::move(rule), .nearest = std::move(nearest)};
  };
  if (!env.exists(asked)) {
    return refuse("there is no such directory", "name a run directory, a directory of checkpoints, or one checkpoint");
  }
  if (!env.is_directory(asked)) {
    return refuse("is a file; a checkpoint is a directory", "name the directory: " + directory_name(asked));
  }
  std::optional<FoundCheckpoint> named = parse_path(asked);
  if (env.exists(join_path(asked, kManifestFile)) && !named) named = FoundCheckpoint{.path = asked};
  if (named) return std::vector{*named};
  const std::string inside = join_path(asked, kCheckpointsDirectory);
  const std::string& directory = env.is_directory(inside) ? inside : asked;
  std::vector<FoundCheckpoint> all;
  for (const std::string& name : env.list_directory(directory)) {
    auto found = parse_path(join_path(directory, name));
    if (!found || !env.is_directory(found->path)) continue;
    if (found->presence == Presence::kPartial || holds_checkpoint(env, found->path)) all.push_back(std::move(*found));
  }
  std::stable_sort(all.begin(), all.end(), [](const FoundCheckpoint& a, const FoundCheckpoint& b) {
    return std::pair(-a.step, a.presence) < std::pair(-b.step, b.presence);
  });
  return all;
}

Result<std::vector<std::string>> find_checkpoints(Env& env, const std::string& path) {
  const auto listed = list_checkpoints(env, path);
  if (!listed) return listed.failure();
  if (env.exists(join_path(path, kManifestFile))) return std::vector{listed->front().path};
  std::vector<std::string> complete;
  for (const FoundCheckpoint& found : *listed) {
    if (found.presence == Presence::kComplete) complete.push_back(found.path);
  }
  return complete;
}

Result<std::string> newest_checkpoint(Env& env, const std::string& path) {
  const auto found = find_checkpoints(env, path);
  if (!found) return found.failure();
  if (!found->empty()) return found->front();
  const auto refuse = [&](std::string rule, std::string nearest) {
    return Failure{path, "", std::move(rule), std::move(nearest), ExitCode::kStorage};
  };
  const auto others = list_checkpoints(env, path);
  if (!others) return others.failure();
  const auto aside = std::find_if(others->begin(), others->end(),
                                  [](const FoundCheckpoint& f) { return f.presence == Presence::kAside; });
  if (aside != others->end()) {
    return refuse("has no complete checkpoint but those set aside", "name one of these: " + aside->path);
  }
  if (!others->empty()) {
    return refuse("has no complete checkpoint, only a save that was not completed: " + others->front().path,
                  "nothing can be read from that one");
  }
  return refuse(fmt::format("is no checkpoint (there is no {} in it) and holds none", kManifestFile),
                "name a run directory, a directory of checkpoints, or one checkpoint");
}

}  // namespace trireme::checkpoint
