// A layer takes a tensor-parallel communicator of any size: the shards of 2, 3 and 4 ranks together give what one rank
// gives, outputs and gradients, up to the rounding of another order of sums; with sequence parallelism too. And each
// pass uses the workspace that the plan says.

#include <algorithm>
#include <cmath>
#include <limits>
#include <thread>

#include <gtest/gtest.h>

#include "base/random.h"
#include "engine/comm/threads.h"
#include "engine/nn/unit_harness.h"
#include "model/test_configs.h"

namespace trireme::nn {
namespace {

using model::FlowPass;
using model::Role;

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

model::Config llama_with_biases() {
  model::Config c = config_for(model::Family::kLlama, 4, 2);
  c.attention_input_bias = c.attention_output_bias = c.mlp_bias = true;
  return c;
}

model::Config family(model::Family which) {
  model::Config c = model::as_family(config_for(model::Family::kLlama, 4, 2), which);
  c.first_window_layer = 0;
  c.tied_embeddings = false;
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

constexpr std::int64_t kSequences = 2, kSequence = 12;  // three ranks' rows: the second's are of both sequences

// Runs a pass and compares the workspace that it took.
void measured(UnitHarness& h, FlowPass pass, kernels::TensorView out, VectorSink& sink) {
  Workspace& workspace = h.context().workspace;
  workspace.reset_high_water();
  h.run(pass, out, &sink, 1.0 / 24.0);
  EXPECT_EQ(workspace.high_water().count, h.program[pass].workspace.count)
      << h.unit << " pass " << static_cast<int>(pass);
}

void forget_dropped(UnitHarness& h) {
  for (const model::SavedActivation& entry : h.program.saved) {
    const auto group = model::group_of(entry, h.layout.recompute);
    if (group != model::ActivationGroup::kRemade && group != model::ActivationGroup::kRemadeForWeight) continue;
    std::ranges::fill(h.saved_values.at(entry.value.name), std::numeric_limits<double>::quiet_NaN());
  }
}

// Decoder and head: forward, recompute where asked for, backward.
void run_passes(UnitHarness& h, kernels::TensorView out, kernels::TensorView d_in, VectorSink& sink) {
  measured(h, FlowPass::kForward, out, sink);
  if (h.layout.recompute != model::Recompute::kNone) {
    forget_dropped(h);
    measured(h, FlowPass::kRecompute, {}, sink);
  }
  measured(h, FlowPass::kBackwardInput, d_in, sink);
  if (h.unit == 1) measured(h, FlowPass::kBackwardWeight, {}, sink);
}

// One rank's run of a unit. output: its own rows; the head's: the losses of all tokens, which a pass of their own must
// give too. The first and the last token bear none.
void run_rank(UnitHarness& h, VectorSink& sink, Outcome& outcome) {
  const UnitContext context = h.context();
  const std::int64_t rows = context.widths.sequence_tokens, hidden = h.config.hidden;
  outcome.output.resize(static_cast<std::size_t>(rows * hidden));
  outcome.d_input.resize(outcome.output.size());
  const kernels::TensorView out = h.view(outcome.output, rows, hidden);
  const kernels::TensorView d_in = h.view(outcome.d_input, rows, hidden);
  const auto first = static_cast<std::size_t>(context.first_row() * hidden);
  for (const auto& [name, stream] : {std::pair{"input", 0}, {"output gradient", 19}}) {
    if (!h.saved_values.contains(name)) continue;
    std::vector<double>& values = h.saved_values[name];
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = wave(static_cast<std::uint64_t>(stream), first + i);
  }
  if (h.unit == 0) {
    measured(h, FlowPass::kForward, out, sink);
    measured(h, FlowPass::kBackwardWeight, {}, sink);
    return;
  }
  if (h.unit == 2) h.targets.front() = h.targets.back() = kernels::kIgnoredTarget;
  run_passes(h, out, d_in, sink);
  if (h.unit == 1) return;
  const auto* losses = reinterpret_cast<const double*>(h.loss.losses.data);
  outcome.output.assign(losses, losses + context.tokens());
  h.run(FlowPass::kLoss);
  EXPECT_TRUE(std::equal(outcome.output.begin(), outcome.output.end(), losses));
  EXPECT_EQ(losses[0], 0.0);
  EXPECT_EQ(outcome.output.back(), 0.0);
}

// Whole tensors: of every rank the same, or each rank's rows after those of the rank before it.
std::vector<double> together(const std::vector<Outcome>& outcomes, std::vector<double> Outcome::*tensor, bool rows) {
  std::vector<double> whole = outcomes[0].*tensor;
  for (std::size_t r = 1; r < outcomes.size(); ++r) {
    const std::vector<double>& values = outcomes[r].*tensor;
    if (rows) {
      whole.insert(whole.end(), values.begin(), values.end());
    } else {
      EXPECT_EQ(values, whole) << "rank " << r;
    }
  }
  return whole;
}

Outcome run_unit(const model::Config& config, int unit, int tp, bool sequence_parallel = false,
                 model::Recompute recompute = model::Recompute::kNone) {
  comm::ThreadWorld world(tp, Seconds{30});
  comm::GroupName name{.axis = "tensor", .ranks = {}};
  for (int r = 0; r < tp; ++r) name.ranks.push_back(r);
  std::vector<std::unique_ptr<UnitHarness>> ranks;
  std::vector<std::unique_ptr<comm::Communicator>> groups;
  std::vector<std::unique_ptr<VectorSink>> sinks;
  std::vector<Outcome> outcomes(static_cast<std::size_t>(tp));
  for (int r = 0; r < tp; ++r) {
    groups.push_back(world.make_communicator(name, r));
    ranks.push_back(std::make_unique<UnitHarness>(config, unit, kSequences, kSequence, *groups.back(),
                                                  sequence_parallel, recompute));
    ranks.back()->set_weights(weight_value);
    sinks.push_back(std::make_unique<VectorSink>(ranks.back()->weights));
  }
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < outcomes.size(); ++r) {
    threads.emplace_back([&, r] { run_rank(*ranks[r], *sinks[r], outcomes[r]); });
  }
  for (std::thread& thread : threads) thread.join();
  Outcome whole;
  whole.output = together(outcomes, &Outcome::output, sequence_parallel && unit < 2);
  whole.d_input = together(outcomes, &Outcome::d_input, sequence_parallel);
  for (std::size_t r = 0; r < outcomes.size(); ++r) scatter(*ranks[r], *sinks[r], whole);
  return whole;
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

void expect_same(const Outcome& sharded, const Outcome& whole, int unit) {
  ASSERT_EQ(sharded.output.size(), whole.output.size());
  EXPECT_LT(relative_difference(sharded.output, whole.output), 1e-13) << unit;
  if (unit > 0) {
    ASSERT_EQ(sharded.d_input.size(), whole.d_input.size());
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

TEST_P(UnitTensorParallel, ShardsTogetherAreTheWhole) {
  const Case& c = GetParam();
  for (int unit = 0; unit < 3; ++unit) {
    expect_same(run_unit(c.config, unit, c.tp), run_unit(c.config, unit, 1), unit);
  }
}

TEST_P(UnitTensorParallel, TokensAndShardsTogetherAreTheWhole) {
  const Case& c = GetParam();
  for (int unit = 0; unit < 3; ++unit) {
    const Outcome whole = run_unit(c.config, unit, 1);
    for (auto recompute : {model::Recompute::kNone, model::Recompute::kSelective, model::Recompute::kFull}) {
      expect_same(run_unit(c.config, unit, c.tp, true, recompute), whole, unit);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Degrees, UnitTensorParallel,
                         ::testing::Values(Case{"gpt2_tp2", config_for(model::Family::kGpt2, 4, 4), 2},
                                           Case{"gpt2_tp3", config_for(model::Family::kGpt2, 3, 3), 3},
                                           Case{"llama_tp2", config_for(model::Family::kLlama, 4, 2), 2},
                                           Case{"llama_biases_tp2", llama_with_biases(), 2},
                                           Case{"llama_tp4_beyond_kv_heads", config_for(model::Family::kLlama, 4, 2),
                                                4},
                                           Case{"llama_tp4_one_kv_head", config_for(model::Family::kLlama, 4, 1), 4},
                                           Case{"mistral_tp2", family(model::Family::kMistral), 2},
                                           Case{"qwen2_tp2", family(model::Family::kQwen2), 2},
                                           Case{"qwen3_tp2", family(model::Family::kQwen3), 2},
                                           Case{"qwen3_tp4_beyond_kv_heads", family(model::Family::kQwen3), 4},
                                           Case{"gemma_tp2", family(model::Family::kGemma), 2},
                                           Case{"olmo2_tp2", family(model::Family::kOlmo2), 2},
                                           Case{"olmo2_tp4_beyond_kv_heads", family(model::Family::kOlmo2), 4},
                                           Case{"phi3_tp2", family(model::Family::kPhi3), 2}),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace trireme::nn
