#pragma once

// Exact parameter counts from a config.json: of every family that has a parameter table, and of mixture-of-experts
// models (mixtral, qwen3_moe, deepseek_v3) that have none yet.

#include <cstdint>
#include <string>

#include "base/error.h"
#include "base/json.h"

namespace trireme::model {

struct ParameterCounts {
  std::int64_t total = 0;           // a tied tensor counts once; additional prediction layers (MTP) do not count
  std::int64_t active = 0;          // total without the routed experts that a token does not visit
  std::int64_t embedding = 0;       // of the total: the token embedding
  std::int64_t routed_experts = 0;  // of the total: all routed experts of all layers
  std::int64_t corrections = 0;  // of the total: the routers' balancing biases (deepseek_v3), no gradient trains them
  friend bool operator==(const ParameterCounts&, const ParameterCounts&) = default;
};

// Refuses what read_config refuses; of a mixture of experts, fields that are unknown or do not fit together. Fields
// that no count depends on are passed over there.
Result<ParameterCounts> count_parameters(const Json& config, const std::string& what);

// By its model_type: one of the three above.
bool is_mixture_of_experts(const Json& config);

}  // namespace trireme::model
