#pragma once

// Test support: problems over real models and clusters, and random legal layouts of them.

#include <string>
#include <vector>

#include "base/env.h"
#include "base/random.h"
#include "model/flops.h"
#include "planner/choice.h"
#include "planner/search.h"

namespace trireme::planner {

// Independent draws from a seed.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : key_{seed, 0} {}
  int upto(int most) { return 1 + static_cast<int>(random_bits(key_, next_++) % static_cast<std::uint32_t>(most)); }
  bool coin() { return upto(2) == 1; }
  double real(double least, double most) { return least + (most - least) * random_uniform(key_, next_++); }
  template <class T>
  const T& one_of(const std::vector<T>& values) {
    return values[static_cast<std::size_t>(upto(static_cast<int>(values.size())) - 1)];
  }

 private:
  RandomKey key_;
  std::uint64_t next_ = 0;
};

// GPT of 34 s b h bytes a layer: f = 4 h, learned positions, biases, tied embeddings, 51,200 tokens.
inline model::Config gpt(std::int64_t layers, std::int64_t hidden, std::int64_t heads) {
  model::Config config{
      .family = model::Family::kGpt2, .layers = layers, .hidden = hidden, .heads = heads, .kv_heads = heads};
  config.head_dim = hidden / heads;
  config.ffn = 4 * hidden;
  config.vocabulary = 51'200;
  config.max_positions = 2048;
  config.norm = model::NormKind::kLayerNorm;
  config.activation = model::Activation::kGeluTanh;
  config.gated_mlp = false;
  config.attention_input_bias = config.attention_output_bias = config.mlp_bias = true;
  config.tied_embeddings = true;
  config.position = model::PositionKind::kLearned;
  return config;
}

// Models of examples/models, 124 million to 405 billion parameters.
inline const std::vector<std::string>& example_models() {
  static const std::vector<std::string> names{"gpt2",        "llama-3.2-1b", "tinyllama-1.1b", "gpt2-xl",
                                              "mistral-7b",  "llama-2-7b",   "qwen2.5-7b",     "llama-3-8b",
                                              "llama-2-70b", "llama-3-70b",  "llama-3.1-405b"};
  return names;
}
inline model::Config example_model(const std::string& name) {
  return model::load_config(posix_env(), "examples/models/" + name).or_throw();
}
inline cluster::Cluster preset(const std::string& name) { return cluster::load_cluster(posix_env(), name).or_throw(); }

inline Problem problem_of(const model::Config& config, const std::string& cluster, std::int64_t global_batch,
                          std::int64_t sequence, const std::string& framework = "trireme",
                          DType compute = DType::kBF16) {
  return make_problem(config, preset(cluster), global_batch, sequence, compute, default_calibration(), framework)
      .or_throw();
}

// A legal layout over all devices, drawn evenly over its degrees rather than over all layouts.
inline Choice random_choice(const Problem& problem, Dice& dice) {
  using plan::ScheduleKind;
  const auto world = static_cast<int>(problem.cluster.devices());
  for (;;) {
    Choice c;
    c.tp = dice.one_of(legal_tensor_degrees(problem, world, true));
    c.pp = dice.one_of(legal_pipeline_degrees(problem, world, c.tp));
    c.dp = world / c.tp / c.pp;
    if (problem.global_batch % c.dp != 0) continue;
    c.micro_batch = std::int64_t{1} << (dice.upto(5) - 1);
    c.schedule = dice.one_of<ScheduleKind>(
        {ScheduleKind::kGpipe, ScheduleKind::kOneFOneB, ScheduleKind::kInterleaved, ScheduleKind::kZeroBubbleH1});
    if (c.schedule == ScheduleKind::kInterleaved) c.interleave = dice.upto(4);
    c.zero = dice.upto(4) - 1;
    c.recompute =
        dice.one_of<model::Recompute>({model::Recompute::kNone, model::Recompute::kSelective, model::Recompute::kFull});
    c.order = dice.one_of<plan::AxisOrder>({plan::AxisOrder::kTpPpDp, plan::AxisOrder::kTpDpPp});
    c.sequence_parallel = dice.coin();
    c.reduce = dice.one_of<plan::ReduceWhen>({plan::ReduceWhen::kStep, plan::ReduceWhen::kMicrobatch});
    c.prefetch = dice.upto(3);
    if (plan::check_layout(problem.config, c.layout(), problem.batch(c.micro_batch)).ok()) return c;
  }
}

}  // namespace trireme::planner
