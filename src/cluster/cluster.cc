#include "cluster/cluster.h"

#include <algorithm>
#include <charconv>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "base/embedded_file.h"
#include "cluster/keys.h"

namespace trireme::cluster {

std::span<const EmbeddedFile> presets();  // examples/clusters/

namespace {

std::vector<std::string> preset_words() {
  std::vector<std::string> words;
  for (const EmbeddedFile& preset : presets()) words.emplace_back(preset.name);
  return words;
}

Failure no_such_cluster(const std::string& asked, std::string_view name) {
  std::string list;
  for (const std::string& word : preset_words()) list += (list.empty() ? "" : ", ") + word;
  return {.option = "cluster",
          .value = asked,
          .rule = fmt::format("is no file and no preset (presets: {})", list),
          .nearest = nearest_word(name, preset_words())};
}

// "h100:2048" -> "h100", "2048"; a file's name may hold a colon too, so the last one counts.
struct Asked {
  std::string_view name;
  std::string_view devices;  // "" where no colon is
  bool has_colon = false;
};
Asked split(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return {text, "", false};
  return {text.substr(0, colon), text.substr(colon + 1), true};
}

Result<Cluster> load_preset(const std::string& asked, const Asked& parts) {
  const std::string what = fmt::format("preset {}", parts.name);
  const Result<Json> document = parse_toml(preset_text(parts.name), what);
  if (!document) return document.failure();
  Result<Cluster> cluster = parse_cluster(*document, what);
  if (!cluster || !parts.has_colon) return cluster;
  std::int64_t devices = 0;
  const char* end = parts.devices.data() + parts.devices.size();
  const auto [stop, error] = std::from_chars(parts.devices.data(), end, devices);
  if (error != std::errc() || stop != end) {
    return Failure{.option = "cluster",
                   .value = asked,
                   .rule = "after the colon stands the number of devices",
                   .nearest = fmt::format("write it like {}:{}", parts.name, 8 * cluster->devices_per_host)};
  }
  return with_devices(std::move(cluster).value(), devices);
}

}  // namespace

std::vector<std::string_view> preset_names() {
  std::vector<std::string_view> names;
  for (const EmbeddedFile& preset : presets()) names.push_back(preset.name);
  return names;
}

std::string_view preset_text(std::string_view name) {
  const auto at = std::ranges::find(presets(), name, &EmbeddedFile::name);
  return at == presets().end() ? std::string_view{} : at->text;
}

Result<Cluster> load_cluster(Env& env, const std::string& path_or_preset) {
  const Asked parts = split(path_or_preset);
  if (!preset_text(parts.name).empty()) return load_preset(path_or_preset, parts);
  if (env.is_directory(path_or_preset)) {
    return Failure{.option = "cluster",
                   .value = path_or_preset,
                   .rule = "is a directory",
                   .nearest = "give the path of a cluster.toml, or the name of a preset"};
  }
  if (path_or_preset.empty() || !env.exists(path_or_preset)) return no_such_cluster(path_or_preset, parts.name);
  const Result<Json> document = parse_toml(env.read_file(path_or_preset), path_or_preset);
  if (!document) return document.failure();
  return parse_cluster(*document, path_or_preset);
}

Result<Cluster> with_devices(Cluster cluster, std::int64_t devices) {
  const auto refuse = [&](std::string rule, std::string nearest) {
    return Failure{.option = "devices",
                   .value = fmt::format("{}", devices),
                   .rule = std::move(rule),
                   .nearest = std::move(nearest)};
  };
  const std::int64_t per_host = cluster.devices_per_host;
  if (devices < 1) return refuse("must be at least 1", "1");
  if (devices > kMaximumCount) {
    return refuse(fmt::format("must be at most {}", kMaximumCount),
                  fmt::format("{}", kMaximumCount / per_host * per_host));
  }
  if (devices < per_host) {
    cluster.hosts = 1;
    cluster.devices_per_host = static_cast<int>(devices);
    return cluster;
  }
  if (devices % per_host != 0) {
    const std::int64_t below = devices / per_host * per_host;
    const bool above_is_legal = below + per_host <= kMaximumCount;
    return refuse(fmt::format("must be whole hosts of {} devices, or less than one host", per_host),
                  above_is_legal ? fmt::format("{}, {}", below, below + per_host) : fmt::format("{}", below));
  }
  cluster.hosts = static_cast<int>(devices / per_host);
  return cluster;
}

}  // namespace trireme::cluster
