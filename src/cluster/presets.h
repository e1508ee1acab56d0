#pragma once

// The files of examples/clusters/, as the build embeds them (embed_presets.cmake).

#include <span>
#include <string_view>

namespace trireme::cluster {

struct Preset {
  std::string_view name;  // of its file, without .toml
  std::string_view text;
};
std::span<const Preset> presets();

}  // namespace trireme::cluster
