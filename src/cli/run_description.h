#pragma once

// What a run is, as its supervisor has read it once and hands it to every start of its workers: the user's files may
// change, or be pipes, meanwhile.

#include <optional>
#include <string>

#include "base/env.h"
#include "base/error.h"
#include "base/json.h"
#include "cluster/cluster.h"
#include "engine/train/run_config.h"

namespace trireme::cli {

struct RunDescription {
  train::RunConfig config;
  std::optional<Json> model;                // the config.json; none: model.config is still to be read
  std::optional<cluster::Cluster> cluster;  // of checkpoint.cluster, where this process has read it
};

// The environment variable that a worker finds it in.
inline constexpr const char* kRunVariable = "TRIREME_RUN";

// The run and its model (CHECK: read) as one word of printable characters without a semicolon, which launchers take for
// a separator. Refused where it is longer than one variable can be.
Result<std::string> to_word(const RunDescription& description);
// Whatever to_word() gave; overrides win over it. Error(kUsage) where it is none.
RunDescription description_of(const std::string& word,
                              const std::vector<std::pair<std::string, std::string>>& overrides);

}  // namespace trireme::cli
