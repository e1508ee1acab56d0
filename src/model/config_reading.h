#pragma once

// A config.json for those who count: counts, bytes and plans depend on a model's shapes alone. Whoever computes reads
// with parse_config and load_config (model/config.h).

#include <string>
#include <vector>

#include "base/env.h"
#include "base/error.h"
#include "base/json.h"
#include "model/config.h"

namespace trireme::model {

struct ConfigReading {
  Config config;  // what it says of the arithmetic holds only where nothing is refused
  // What asks for other arithmetic than is implemented, or says of it what cannot be: no shape depends on that.
  std::vector<Failure> not_computed;
};

// Refused is only what shapes depend on, and an unknown field that may switch something on.
Result<ConfigReading> read_config(const Json& document, const std::string& what);
// Reads path, or path/config.json if path is a directory.
Result<ConfigReading> load_config_reading(Env& env, const std::string& path);

}  // namespace trireme::model
