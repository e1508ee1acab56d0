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

  // 4 layers, 8 heads, an odd vocabulary, no dropout. family: "llama" (2 key/value heads) or "gpt2".
  static model::Config config(const std::string& family);
  void use_family(const std::string& family) { use_config(config(family)); }
  void use_config(const model::Config& config);
  // 2 layers, 6 heads, hidden 24: "llama", "gpt2", or "relu", a gpt2 with that activation.
  static model::Config narrow_config(const std::string& family);
  // `directory` with weights of the configuration in use, trained for a few steps from `seed`.
  void put_weights(const std::string& directory, const std::string& seed);

  using Settings = std::vector<std::pair<std::string, std::string>>;
  // The layout of `settings` against 1 x 1 x 1, with 8 sequences of 16 tokens a step unless set otherwise.
  train::VerifyReport report(const Settings& settings, const train::RankHooks& hooks = {}, int steps = 2) {
    return against({}, settings, hooks, steps);
  }
  train::VerifyReport against(const plan::Layout& reference, const Settings& settings,
                              const train::RankHooks& hooks = {}, int steps = 2);

  // layers: of the model, the first; 0: all.
  train::ResolvedRun resolved(const Settings& settings, std::int64_t layers = 0);
  // Other data.
  void use_text(const std::string& text);

  FakeEnv& env() { return env_; }
  MemoryLog& log() { return log_; }

 private:
  FakeEnv env_;
  MemoryLog log_;
};

// The largest difference over its bound of any gradient; of anything that was compared.
double worst_ratio(const train::VerifyReport& report);
double largest_ratio(const train::VerifyReport& report);

}  // namespace trireme::testing
