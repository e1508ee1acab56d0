// Every backward pass of every unit against central finite differences, in float64: inputs and every weight.

#include <cmath>
#include <functional>

#include <gtest/gtest.h>

#include "base/random.h"
#include "engine/nn/unit_harness.h"
#include "model/test_configs.h"

namespace trireme::nn {
namespace {

using model::FlowPass;
using model::Role;

double wave(std::uint64_t stream, std::uint64_t i) {
  return 2.0 * static_cast<double>(random_uniform({5, stream}, i)) - 1.0;
}

model::Config gpt2(double dropout) {
  model::Config c = model::small_gpt2();
  c.layers = 1;
  c.hidden = 12;
  c.head_dim = 4;
  c.ffn = 20;
  c.vocabulary = 13;
  c.max_positions = 9;
  c.embedding_dropout = c.attention_dropout = c.residual_dropout = dropout;
  return c;
}

model::Config llama(bool biases) {
  model::Config c = model::small_llama();
  c.layers = 1;
  c.hidden = 12;
  c.head_dim = 6;  // heads * head_dim is not hidden
  c.ffn = 20;
  c.vocabulary = 13;
  c.attention_input_bias = c.attention_output_bias = c.mlp_bias = biases;
  return c;
}

// Windows of 5 and of 4 in a sequence of 9.
model::Config family(model::Family which) {
  model::Config c = model::as_family(llama(false), which);
  c.first_window_layer = 0;
  return c;
}

struct Case {
  const char* name;
  model::Config config;
  std::int64_t sequences;
  std::int64_t sequence;
  friend void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }
};

class UnitGradient : public ::testing::TestWithParam<Case> {
 protected:
  std::unique_ptr<comm::Communicator> self_ = comm::make_self_communicator("tensor", 0);

  static double weight_value(const model::Parameter& p, std::int64_t i, std::int64_t j) {
    const double offset = p.init.kind == model::InitKind::kOnes ? 1.0 : 0.0;
    const auto element = static_cast<std::uint64_t>(i * 1000 + j);
    return offset + 0.4 * wave(stream_of("weight", p.name), element);
  }

  // d(objective)/d(values[i]) by central differences, against `gradient`.
  static void expect_gradient(const std::string& what, std::vector<double>& values, const std::vector<double>& gradient,
                              const std::function<double()>& objective) {
    ASSERT_EQ(values.size(), gradient.size()) << what;
    double error = 0.0, size = 0.0;
    const std::size_t stride = std::max<std::size_t>(1, values.size() / 40);
    for (std::size_t i = 0; i < values.size(); i += stride) {
      constexpr double kStep = 1e-5;
      const double kept = values[i];
      values[i] = kept + kStep;
      const double up = objective();
      values[i] = kept - kStep;
      const double down = objective();
      values[i] = kept;
      const double difference = (up - down) / (2 * kStep) - gradient[i];
      error += difference * difference;
      size += gradient[i] * gradient[i];
    }
    EXPECT_LT(std::sqrt(error), 2e-8 * std::max(1.0, std::sqrt(size))) << what << " of size " << std::sqrt(size);
  }
};

TEST_P(UnitGradient, Decoder) {
  const Case& c = GetParam();
  UnitHarness h(c.config, 1, c.sequences, c.sequence, *self_);
  h.set_weights(weight_value);
  const auto count = static_cast<std::size_t>(c.sequences * c.sequence * c.config.hidden);
  std::vector<double> out(count), probe(count), d_input(count);
  std::vector<double>& input = h.saved_values["input"];
  for (std::size_t i = 0; i < count; ++i) {
    input[i] = wave(1, i);
    probe[i] = wave(2, i);
  }
  const auto tokens = c.sequences * c.sequence;
  const auto objective = [&] {
    h.run(FlowPass::kForward, h.view(out, tokens, c.config.hidden));
    double sum = 0.0;
    for (std::size_t i = 0; i < count; ++i) sum += out[i] * probe[i];
    return sum;
  };
  objective();
  std::ranges::copy(probe, h.saved_values["output gradient"].begin());
  VectorSink sink(h.weights);
  h.run(FlowPass::kBackwardInput, h.view(d_input, tokens, c.config.hidden), &sink);
  h.run(FlowPass::kBackwardWeight, {}, &sink);

  expect_gradient("input", input, d_input, objective);
  EXPECT_EQ(sink.gradients.size(), h.weight_values.size());
  for (auto& [role, values] : h.weight_values) {
    expect_gradient(std::string(model::role_name(role)), values, sink.gradients[role], objective);
  }
}

TEST_P(UnitGradient, RecomputeMakesTheSameBits) {
  const Case& c = GetParam();
  for (auto recompute : {model::Recompute::kSelective, model::Recompute::kFull}) {
    UnitHarness h(c.config, 1, c.sequences, c.sequence, *self_, false, recompute);
    h.set_weights(weight_value);
    std::vector<double>& input = h.saved_values["input"];
    for (std::size_t i = 0; i < input.size(); ++i) input[i] = wave(1, i);
    std::vector<double> out(input.size());
    h.run(FlowPass::kForward, h.view(out, c.sequences * c.sequence, c.config.hidden));
    const auto kept = h.saved_values;
    int remade = 0;
    for (const model::SavedActivation& entry : h.program.saved) {
      const auto group = model::group_of(entry, recompute);
      if (group != model::ActivationGroup::kRemade && group != model::ActivationGroup::kRemadeForWeight) continue;
      std::ranges::fill(h.saved_values[entry.value.name], std::nan(""));
      ++remade;
    }
    EXPECT_GE(remade, c.config.norms_outputs ? 1 : 3);
    h.run(FlowPass::kRecompute);
    for (const model::SavedActivation& entry : h.program.saved) {
      if (!entry.gradient) {
        EXPECT_EQ(h.saved_values[entry.value.name], kept.at(entry.value.name)) << entry.value.name;
      }
    }
  }
}

TEST_P(UnitGradient, Embedding) {
  const Case& c = GetParam();
  UnitHarness h(c.config, 0, c.sequences, c.sequence, *self_);
  h.set_weights(weight_value);
  const auto tokens = c.sequences * c.sequence;
  const auto count = static_cast<std::size_t>(tokens * c.config.hidden);
  std::vector<double> out(count), probe(count);
  for (std::size_t i = 0; i < count; ++i) probe[i] = wave(2, i);
  const auto objective = [&] {
    h.run(FlowPass::kForward, h.view(out, tokens, c.config.hidden));
    double sum = 0.0;
    for (std::size_t i = 0; i < count; ++i) sum += out[i] * probe[i];
    return sum;
  };
  objective();
  std::ranges::copy(probe, h.saved_values["output gradient"].begin());
  VectorSink sink(h.weights);
  h.run(FlowPass::kBackwardWeight, {}, &sink);
  for (auto& [role, values] : h.weight_values) {
    expect_gradient(std::string(model::role_name(role)), values, sink.gradients[role], objective);
  }
}

TEST_P(UnitGradient, Head) {
  Case c = GetParam();
  c.config.tied_embeddings = false;
  UnitHarness h(c.config, 2, c.sequences, c.sequence, *self_);
  h.set_weights(weight_value);
  const auto tokens = c.sequences * c.sequence;
  std::vector<double>& input = h.saved_values["input"];
  for (std::size_t i = 0; i < input.size(); ++i) input[i] = wave(1, i);
  const double scale = 1.0 / static_cast<double>(3 * tokens);  // as if the global batch were three times as large
  const auto objective = [&] {
    h.run(FlowPass::kForward);
    h.run(FlowPass::kLoss);
    double sum = 0.0;
    const auto* losses = reinterpret_cast<const double*>(h.loss.losses.data);
    for (std::int64_t t = 0; t < tokens; ++t) sum += losses[t];
    return sum * scale;
  };
  objective();
  std::vector<double> d_input(input.size());
  VectorSink sink(h.weights);
  h.run(FlowPass::kBackwardInput, h.view(d_input, tokens, c.config.hidden), &sink, scale);
  expect_gradient("input", input, d_input, objective);
  for (auto& [role, values] : h.weight_values) {
    expect_gradient(std::string(model::role_name(role)), values, sink.gradients[role], objective);
  }
}

INSTANTIATE_TEST_SUITE_P(Units, UnitGradient,
                         ::testing::Values(Case{"gpt2", gpt2(0.0), 2, 5}, Case{"gpt2_dropout", gpt2(0.3), 2, 5},
                                           Case{"llama", llama(false), 2, 5}, Case{"llama_biases", llama(true), 1, 9},
                                           Case{"one_token", llama(false), 3, 1},
                                           Case{"mistral", family(model::Family::kMistral), 1, 9},
                                           Case{"qwen2", family(model::Family::kQwen2), 2, 5},
                                           Case{"qwen3", family(model::Family::kQwen3), 2, 5},
                                           Case{"gemma", family(model::Family::kGemma), 2, 5},
                                           Case{"olmo2", family(model::Family::kOlmo2), 2, 5},
                                           Case{"phi3", family(model::Family::kPhi3), 1, 9}),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace trireme::nn
