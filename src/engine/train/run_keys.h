#pragma once

// What the table of keys (run_keys.cc) and the rules between them (run_config.cc) share.

#include <fmt/format.h>

#include "engine/train/run_config.h"

namespace trireme::train {

inline Failure wrong(const std::string& key, std::string value, std::string rule, std::string nearest = "") {
  return {.option = key, .value = std::move(value), .rule = std::move(rule), .nearest = std::move(nearest)};
}

// "3-5"; "" where none were given.
inline std::string trace_steps_text(const RunConfig& config) {
  return config.trace_first == 0 ? "" : fmt::format("{}-{}", config.trace_first, config.trace_last);
}

// [supervise] (supervise_keys.cc).
std::vector<RunKey> supervise_keys();

}  // namespace trireme::train
