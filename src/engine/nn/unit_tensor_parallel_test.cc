// A layer takes a tensor-parallel communicator of any size: the shards of 2, 3 and 4 ranks together give what one rank
// gives, outputs and gradients, up to the rounding of another order of sums.

#include <cmath>
#include <thread>

#include <gtest/gtest.h>

#include "base/random.h"
#include "engine/comm/threads.h"
#include "engine/nn/decoder.h"
#include "engine/nn/embedding.h"
#include "engine/nn/unit_harness.h"
#include "model/test_configs.h"

namespace trireme::nn {
namespace {

using model::Role;
using model::Saved;

double wave(std::uint64_t stream, std::uint64_t i) {
  return 2.0 * static_cast<double>(random_uniform({6, stream}, i)) - 1.0;
}

double weight_value(const model::Parameter& p, std::int64_t i, std::int64_t j) {
  return 0.3 * wave(stream_of("weight", p.name), static_cast<std::uint64_t>(i * 1000 + j)) +
         (p.init.kind == model::InitKind::kOnes ? 1.0 : 0.0);
}

model::Config config_for(model::Family family, std::int64_t heads, std::int64_t kv_heads) {
  const bool gpt2 = family == model::Family::kGpt2;
  model::Config c = gpt2 ? model::small_gpt2() : model::small_llama();
  c.layers = 1;
  c.tied_embeddings = false;
  c.heads = heads;
  c.kv_heads = kv_heads;
  c.head_dim = 4;
  c.hidden = heads * 4;
  c.ffn = 24;
  c.vocabulary = 13;  // no degree divides it
  if (gpt2) c.attention_dropout = c.residual_dropout = c.embedding_dropout = 0.2;
  return c;
}

// What one rank's passes gave; gradients in global coordinates: parameter name -> sum over ranks that declare parts.
struct Outcome {
  std::vector<double> output;
  std::vector<double> d_input;
  std::map<std::string, std::vector<double>> gradients;
};

void scatter(const UnitHarness& h, const VectorSink& sink, Outcome& outcome) {
  for (const auto& [role, local] : sink.gradients) {
    const model::Parameter& p = h.table.parameters[static_cast<std::size_t>(h.parameters.at(role))];
    std::vector<double>& global = outcome.gradients[p.name];
    global.resize(static_cast<std::size_t>(p.elements()));
    const bool add = plan::tensor_gradient_state(p, h.layout) != model::AxisState::kReplicated;
    std::size_t next = 0;
    const plan::TensorCut cut = plan::cut_of(p, plan::tensor_intervals(p, h.layout.tp, h.tp_index));
    plan::for_each_element(cut, [&](std::int64_t row, std::int64_t column) {
      double& cell = global[static_cast<std::size_t>(row * p.columns() + column)];
      cell = add ? cell + local[next] : local[next];
      ++next;
    });
  }
}

Outcome run_unit(const model::Config& config, int unit, int tp) {
  constexpr std::int64_t kSequences = 2, kSequence = 6;
  comm::ThreadWorld world(tp, Seconds{30});
  comm::GroupName name{.axis = "tensor", .ranks = {}};
  for (int r = 0; r < tp; ++r) name.ranks.push_back(r);
  std::vector<std::unique_ptr<UnitHarness>> ranks;
  std::vector<std::unique_ptr<comm::Communicator>> groups;
  std::vector<std::unique_ptr<VectorSink>> sinks(static_cast<std::size_t>(tp));
  std::vector<Outcome> outcomes(static_cast<std::size_t>(tp));
  for (int r = 0; r < tp; ++r) {
    groups.push_back(world.make_communicator(name, r));
    ranks.push_back(std::make_unique<UnitHarness>(config, unit, kSequences, kSequence, *groups.back()));
  }
  const auto body = [&](int r) {
    UnitHarness& h = *ranks[static_cast<std::size_t>(r)];
    Outcome& outcome = outcomes[static_cast<std::size_t>(r)];
    h.set_weights(weight_value);
    sinks[static_cast<std::size_t>(r)] = std::make_unique<VectorSink>(h.weights);
    VectorSink& sink = *sinks[static_cast<std::size_t>(r)];
    const std::int64_t tokens = kSequences * kSequence;
    outcome.output.resize(static_cast<std::size_t>(tokens * config.hidden));
    outcome.d_input.resize(outcome.output.size());
    const kernels::TensorView out = h.view(outcome.output, tokens, config.hidden);
    const kernels::TensorView d_in = h.view(outcome.d_input, tokens, config.hidden);
    for (Saved start : {Saved::kInput, Saved::kOutputGradient}) {
      if (h.saved_values.count(start) == 0) continue;
      std::vector<double>& values = h.saved_values[start];
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = wave(static_cast<std::uint64_t>(start), i);
    }
    if (unit == 0) {
      embedding_forward(h.context(), h.weights, out);
      embedding_backward_weight(h.context(), h.saved, sink);
    } else if (unit == 1) {
      decoder_forward(h.context(), h.weights, h.saved, out);
      decoder_backward_input(h.context(), h.weights, h.saved, d_in, sink);
      decoder_backward_weight(h.context(), h.saved, sink);
    } else {
      head_forward(h.context(), h.weights, h.saved);
      head_backward_input(h.context(), h.weights, h.saved, h.loss, 1.0 / 12.0, d_in, sink);
      std::memcpy(outcome.output.data(), h.loss.losses.data, static_cast<std::size_t>(tokens) * sizeof(double));
    }
  };
  std::vector<std::thread> threads;
  for (int r = 0; r < tp; ++r) threads.emplace_back(body, r);
  for (std::thread& thread : threads) thread.join();
  for (int r = 0; r < tp; ++r) {
    EXPECT_EQ(outcomes[static_cast<std::size_t>(r)].output, outcomes[0].output) << "rank " << r;
    EXPECT_EQ(outcomes[static_cast<std::size_t>(r)].d_input, outcomes[0].d_input) << "rank " << r;
    scatter(*ranks[static_cast<std::size_t>(r)], *sinks[static_cast<std::size_t>(r)], outcomes[0]);
  }
  return outcomes[0];
}

double relative_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0.0, size = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return std::sqrt(difference / std::max(size, 1e-30));
}

struct Case {
  const char* name;
  model::Config config;
  int tp;
  friend void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }
};

class UnitTensorParallel : public ::testing::TestWithParam<Case> {};

TEST_P(UnitTensorParallel, ShardsTogetherAreTheWhole) {
  const Case& c = GetParam();
  for (int unit = 0; unit < 3; ++unit) {
    const Outcome whole = run_unit(c.config, unit, 1);
    const Outcome sharded = run_unit(c.config, unit, c.tp);
    EXPECT_LT(relative_difference(sharded.output, whole.output), 1e-13) << unit;
    if (unit > 0) {
      EXPECT_LT(relative_difference(sharded.d_input, whole.d_input), 1e-13) << unit;
    }
    ASSERT_EQ(sharded.gradients.size(), whole.gradients.size());
    for (const auto& [name, gradient] : whole.gradients) {
      // gpt2's key bias has no gradient in exact arithmetic, so it is compared with the floor of 1.
      double size = 0.0;
      for (double g : gradient) size += g * g;
      const double bound = size < 1e-20 ? 1e6 : 1e-12;
      EXPECT_LT(relative_difference(sharded.gradients.at(name), gradient), bound) << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Degrees, UnitTensorParallel,
                         ::testing::Values(Case{"gpt2_tp2", config_for(model::Family::kGpt2, 4, 4), 2},
                                           Case{"gpt2_tp3", config_for(model::Family::kGpt2, 3, 3), 3},
                                           Case{"llama_tp2", config_for(model::Family::kLlama, 4, 2), 2},
                                           Case{"llama_tp4_beyond_kv_heads", config_for(model::Family::kLlama, 4, 2),
                                                4},
                                           Case{"llama_tp4_one_kv_head", config_for(model::Family::kLlama, 4, 1), 4}),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace trireme::nn
