#pragma once

// Text from a trained model: one rank, the whole context again for each token. Meant for a look at what a run has
// learned, not for serving.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/env.h"
#include "base/log.h"

namespace trireme::train {

struct GenerateOptions {
  std::string model_directory;       // config.json and safetensors
  std::vector<std::int32_t> prompt;  // at least one token
  std::int64_t tokens = 200;
  std::int64_t context = 128;  // at most the model's positions
  double temperature = 0.8;    // 0: the likeliest token
  std::uint64_t seed = 1;
  int threads = 1;
};

// Calls `take` with each new token, until it says that it wants no more. Tokens are drawn by counter, so a seed gives
// the same text again.
void generate(Env& env, Log& log, const GenerateOptions& options, const std::function<bool(std::int32_t)>& take);

}  // namespace trireme::train
