#pragma once

// `verify` on a small model over a text, everything in memory: what tests of layouts and of planted faults run.

#include <string>
#include <utility>
#include <vector>

#include "base/fake_env.h"
#include "base/log.h"
#include "engine/train/verify.h"

namespace trireme::testing {

class VerifyRun {
 public:
  VerifyRun();  // llama

  // 4 layers, 8 heads, an odd vocabulary, no dropout. kv_heads: 8 for gpt2, 2 for llama.
  void use_model(model::Config config, std::int64_t kv_heads);
  void use_family(const std::string& family);  // "llama", "gpt2"

  using Settings = std::vector<std::pair<std::string, std::string>>;
  // The layout of `settings` against 1 x 1 x 1, with 8 sequences of 16 tokens a step unless set otherwise.
  train::VerifyReport report(const Settings& settings, const train::RankHooks& hooks = {}, int steps = 2);

 private:
  FakeEnv env_;
  MemoryLog log_;
};

// The largest difference over its bound of any gradient.
double worst_ratio(const train::VerifyReport& report);

}  // namespace trireme::testing
