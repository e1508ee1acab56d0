#pragma once

// Small training runs of one rank for tests: a model, random tokens, steps, and everything that came out.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fake_env.h"
#include "base/log.h"
#include "engine/parallel/rank.h"

namespace trireme::testing {

// Both families, small: 3 layers, odd vocabulary; gpt2 with dropout and tied embeddings, llama with grouped heads.
model::Config tiny_gpt2(double dropout);
model::Config tiny_llama(bool tied);

enum class DeviceKind { kReference, kCpu, kFake };

struct TinyRun {
  model::Config config = {};
  plan::Layout layout = {};
  plan::Batch batch{.global_batch = 6, .micro_batch = 2, .sequence = 17};
  DeviceKind device = DeviceKind::kCpu;
  int threads = 1;
  DType compute = DType::kF32;
  bool fp32_gradients = false;
  std::optional<double> loss_scale = std::nullopt;
  std::uint64_t seed = 3;
  double learning_rate = 1e-2;
  double clip_norm = 1.0;
  double weight_decay = 0.1;
  bool poison = true;
  // Positions of a sample whose targets bear no loss; empty: none.
  std::function<bool(std::uint64_t sample, std::int64_t position)> ignored = {};
  std::vector<int> host_of = {};  // of each rank, by number; empty: one for all
};

// A rank with initialised weights, ready to step.
class TinyRank {
 public:
  explicit TinyRank(const TinyRun& run);
  parallel::StepResult step();  // the next one
  parallel::Rank& rank() { return *rank_; }
  std::vector<float> weights();  // all of them, in table order
  double evaluation_loss();

 private:
  TinyRun run_;
  FakeEnv env_;
  MemoryLog log_;
  std::unique_ptr<parallel::Rank> rank_;
  std::int64_t steps_ = 0;
};

// Losses and norms of each step as hex floats, then the bits of all weights: what must not change.
struct Curve {
  std::vector<std::string> lines;
  std::vector<float> weights;
  friend bool operator==(const Curve&, const Curve&) = default;
};
Curve train_curve(const TinyRun& run, int steps);

}  // namespace trireme::testing
