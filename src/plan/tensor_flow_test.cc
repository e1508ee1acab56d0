// The flow of every legal configuration is clean, and each kind of fault is refused by the name of what is at fault:
// exchanges left out or doubled, and declarations of the parameter table that are not what the layers compute.

#include "plan/tensor_flow.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "model/test_configs.h"
#include "plan/test_random_layouts.h"

namespace trireme::plan {
namespace {

using model::AxisState;
using model::FlowOp;
using model::FlowPass;
using model::FlowStep;
using model::FlowSteps;
using model::Role;
using model::UnitKind;

constexpr std::array kRecomputes = {model::Recompute::kNone, model::Recompute::kSelective, model::Recompute::kFull};

model::Config llama(std::int64_t kv_heads = 2) {
  model::Config c = model::small_llama();
  c.kv_heads = kv_heads;
  return c;
}
model::Config gpt2() {
  model::Config c = model::small_gpt2();
  c.heads = c.kv_heads = 4;
  c.hidden = 32;
  return c;
}

std::vector<model::Config> configs() {
  std::vector<model::Config> all{llama(), llama(1), gpt2()};
  model::Config biases = llama();
  biases.attention_input_bias = biases.attention_output_bias = biases.mlp_bias = true;
  all.push_back(biases);
  for (const model::Family family : model::kRotaryFamilies) all.push_back(model::as_family(llama(), family));
  model::Config dropped = gpt2();
  dropped.embedding_dropout = dropped.attention_dropout = dropped.residual_dropout = 0.1;
  all.push_back(dropped);
  const std::size_t count = all.size();
  for (std::size_t i = 0; i < count; ++i) {
    all.push_back(all[i]);
    all.back().tied_embeddings = !all[i].tied_embeddings;
  }
  return all;
}

std::string sentence(const Status& status) { return status.ok() ? "" : status.failure().sentence(); }

std::string refusal(const model::ParameterTable& table, const Layout& layout) {
  return sentence(check_tensor_flow(table, layout));
}

TEST(TensorFlow, EveryLegalConfigurationIsClean) {
  for (const model::Config& config : configs()) {
    const model::ParameterTable table = model::make_parameter_table(config);
    for (int tp : {1, 2, 4}) {
      for (bool sequence_parallel : {false, true}) {
        for (auto recompute : kRecomputes) {
          const Layout layout{.tp = tp, .recompute = recompute, .sequence_parallel = sequence_parallel && tp > 1};
          EXPECT_EQ(refusal(table, layout), "") << model::family_name(config.family) << ", tp " << tp;
        }
      }
    }
  }
}

TEST(TensorFlow, RandomLayoutsAreClean) {
  for (const RandomLayout& r : random_layouts(300, 5)) {
    EXPECT_EQ(refusal(model::make_parameter_table(r.config), r.layout), "") << describe(r.layout);
  }
}

FlowSteps bound(const model::Config& config, const Layout& layout, int unit) {
  return bind_flow(model::unit_flow(config, unit), layout);
}
int a_unit(const model::Config& config, UnitKind kind) {
  return kind == UnitKind::kEmbedding ? 0 : kind == UnitKind::kDecoder ? 2 : model::unit_count(config) - 1;
}

struct Fault {
  std::string what;
  std::string sentence;
};

// Every exchange that matters to a pass, left out (or done twice): one refusal each.
std::vector<Fault> exchange_faults(const model::Config& config, const Layout& layout, bool twice) {
  const model::ParameterTable table = model::make_parameter_table(config);
  std::vector<Fault> faults;
  for (int unit : {0, 1, model::unit_count(config) - 1}) {
    const FlowSteps flow = bound(config, layout, unit);
    const std::vector<FlowStep>& steps = flow.steps;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (!is_exchange(steps[i].op)) continue;
      FlowSteps faulty = flow;
      const auto at = faulty.steps.begin() + static_cast<std::ptrdiff_t>(i);
      if (twice) {
        FlowStep again = *at;
        again.reads = at->writes;
        faulty.steps.insert(at + 1, again);
      } else {
        faulty.steps.erase(at);
      }
      faults.push_back({fmt::format("unit {}: {} of {}", unit, flow_op_name(steps[i].op), steps[i].writes.front()),
                        sentence(check_unit_flow(table, layout, unit, faulty))});
      // The value of the exchange, and the unit.
      EXPECT_NE(faults.back().sentence.find(steps[i].writes.front()), std::string::npos)
          << faults.back().what << ": " << faults.back().sentence;
      EXPECT_NE(faults.back().sentence.find(model::unit_name(config, unit)), std::string::npos);
    }
  }
  return faults;
}

TEST(TensorFlow, AnExchangeLeftOutOrDoneTwiceIsRefused) {
  for (const model::Config& config : configs()) {
    for (bool sequence_parallel : {false, true}) {
      for (auto recompute : kRecomputes) {
        const Layout layout{.tp = 2, .recompute = recompute, .sequence_parallel = sequence_parallel};
        for (bool twice : {false, true}) {
          EXPECT_GE(exchange_faults(config, layout, twice).size(), sequence_parallel ? 20u : 10u);
        }
      }
    }
  }
}

// The refusal where the first exchange of a value in a pass is left out or repeated.
std::string planted(UnitKind kind, FlowPass pass, std::string_view value, const Layout& layout, bool twice) {
  const model::Config config = llama();
  const int unit = a_unit(config, kind);
  FlowSteps flow = bound(config, layout, unit);
  const auto at = std::ranges::find_if(
      flow.steps, [&](const FlowStep& s) { return is_exchange(s.op) && s.pass == pass && s.writes.front() == value; });
  if (at == flow.steps.end()) return "no such exchange";
  if (twice) {
    flow.steps.insert(at, FlowStep(*at));
  } else {
    flow.steps.erase(at);
  }
  return sentence(check_unit_flow(model::make_parameter_table(config), layout, unit, flow));
}

TEST(TensorFlow, RefusalsNameUnitPassValueAndParameter) {
  const Layout plain{.tp = 2}, rows{.tp = 2, .sequence_parallel = true};
  EXPECT_EQ(planted(UnitKind::kDecoder, FlowPass::kBackwardInput, "norm 2 output gradient", plain, false),
            "tensor axis, layer 1, backward input = norm 2 output gradient: is partial, and norm's gradient of "
            "model.layers.1.post_attention_layernorm.weight needs it whole, or of own rows");
  EXPECT_EQ(planted(UnitKind::kDecoder, FlowPass::kForward, "down projection", plain, true),
            "tensor axis, layer 1, forward = down projection: is whole, and all-reduce needs it partial: it would be "
            "summed once too often");
  EXPECT_EQ(planted(UnitKind::kDecoder, FlowPass::kForward, "norm 1 output, all rows", rows, false),
            "tensor axis, layer 1, forward = norm 1 output, all rows: is read by linear of "
            "model.layers.1.self_attn.q_proj.weight, and no step of this pass has written it, nor is it kept");
  EXPECT_EQ(planted(UnitKind::kHead, FlowPass::kBackwardInput, "row maxima", plain, false),
            "tensor axis, head, backward input = row maxima: is a partial maximum, and sum of exponentials needs it "
            "whole, of all rows");
  EXPECT_EQ(planted(UnitKind::kEmbedding, FlowPass::kForward, "output", plain, false),
            "tensor axis, embedding, forward = output: is partial, and the unit at its other end needs it whole");
}

// Rows used where all are needed: the gather is there, and its result is not what the projection reads.
TEST(TensorFlow, OwnRowsUsedAsAllAreRefused) {
  const model::Config config = llama();
  const Layout layout{.tp = 2, .sequence_parallel = true};
  FlowSteps flow = bound(config, layout, 1);
  for (FlowStep& step : flow.steps) {
    if (step.parameters == std::vector<Role>{Role::kUpWeight} && step.op == FlowOp::kLinear) {
      step.reads = {"norm 2 output"};
    }
  }
  EXPECT_EQ(sentence(check_unit_flow(model::make_parameter_table(config), layout, 1, flow)),
            "tensor axis, layer 0, forward = norm 2 output: is of the rank's own rows, and linear of "
            "model.layers.0.mlp.up_proj.weight needs it whole, of all rows");
}

// A bias added by every rank before the sum would count tp times.
TEST(TensorFlow, ABiasBeforeTheSumIsRefused) {
  const model::Config config = gpt2();
  const Layout layout{.tp = 2};
  FlowSteps flow = bound(config, layout, 1);
  const auto bias = std::ranges::find_if(
      flow.steps, [](const FlowStep& s) { return s.parameters == std::vector<Role>{Role::kDownBias}; });
  std::iter_swap(bias - 1, bias);
  const std::string text = sentence(check_unit_flow(model::make_parameter_table(config), layout, 1, flow));
  EXPECT_NE(text.find("transformer.h.0.mlp.c_proj.bias"), std::string::npos) << text;
  EXPECT_NE(text.find("down projection"), std::string::npos) << text;
}

TEST(TensorFlow, ValuesThatRecomputeDidNotMakeAgainAreRefused) {
  const model::Config config = llama();
  const Layout layout{.tp = 2, .recompute = model::Recompute::kFull};
  FlowSteps flow = bound(config, layout, 1);
  std::erase_if(flow.steps, [](const FlowStep& s) {
    return s.pass == FlowPass::kRecompute && s.writes.front() == "norm 1 output";
  });
  const std::string text = sentence(check_unit_flow(model::make_parameter_table(config), layout, 1, flow));
  EXPECT_NE(text.find("recompute = norm 1 output"), std::string::npos) << text;
}

TEST(TensorFlow, AGradientLeftOutOrGivenTwiceIsRefused) {
  const model::Config config = llama();
  const model::ParameterTable table = model::make_parameter_table(config);
  const Layout layout{.tp = 2};
  const FlowSteps flow = bound(config, layout, 1);
  const auto value = [](const FlowStep& s) {
    return s.op == FlowOp::kLinearWeightGradient && s.parameters.front() == Role::kValueWeight;
  };
  FlowSteps without = flow;
  std::erase_if(without.steps, value);
  EXPECT_EQ(sentence(check_unit_flow(table, layout, 1, without)),
            "tensor axis, layer 0 = model.layers.0.self_attn.v_proj.weight: no step gives the parameter's gradient");
  FlowSteps twice = flow;
  twice.steps.push_back(*std::ranges::find_if(flow.steps, value));
  EXPECT_EQ(sentence(check_unit_flow(table, layout, 1, twice)),
            "tensor axis, layer 0, backward weight = model.layers.0.self_attn.v_proj.weight: its gradient is given "
            "twice");
}

// What check_tensor_flow says once `name` is declared otherwise.
template <class Change>
std::string declared_otherwise(const model::Config& config, const Layout& layout, std::string_view name,
                               const Change& change) {
  model::ParameterTable table = model::make_parameter_table(config);
  const int index = table.find(name);
  EXPECT_GE(index, 0) << name;
  change(table.parameters[static_cast<std::size_t>(index)]);
  return refusal(table, layout);
}

TEST(TensorFlow, APartialGradientDeclaredWholeWouldBeMissed) {
  const Layout rows{.tp = 2, .sequence_parallel = true};
  const auto whole = [](model::Parameter& p) { p.gradient.sequence_parallel = AxisState::kReplicated; };
  EXPECT_EQ(declared_otherwise(llama(), rows, "model.layers.1.input_layernorm.weight", whole),
            "tensor axis, layer 1, backward input = model.layers.1.input_layernorm.weight: its gradient is partial as "
            "norm's gradient gives it, and the parameter table declares it whole: its sum over the ranks would be "
            "missed");
  for (const char* name : {"transformer.ln_f.bias", "transformer.wpe.weight", "transformer.h.1.mlp.c_proj.bias"}) {
    const std::string text = declared_otherwise(gpt2(), rows, name, whole);
    EXPECT_NE(text.find(name), std::string::npos) << text;
    EXPECT_NE(text.find("missed"), std::string::npos) << text;
  }
}

// Two key/value heads over four ranks, declared as four pieces that no rank shares.
TEST(TensorFlow, SharedKeyValueHeadsDeclaredUnsharedWouldBeMissed) {
  for (bool sequence_parallel : {false, true}) {
    const Layout layout{.tp = 4, .sequence_parallel = sequence_parallel};
    for (const char* name : {"model.layers.0.self_attn.k_proj.weight", "model.layers.1.self_attn.v_proj.weight"}) {
      const std::string text = declared_otherwise(llama(), layout, name, [](model::Parameter& p) {
        p.split.blocks.front().count *= 2;
        p.split.blocks.front().piece /= 2;
      });
      EXPECT_NE(text.find(name), std::string::npos) << text;
      EXPECT_NE(text.find("missed"), std::string::npos) << text;
    }
  }
}

TEST(TensorFlow, AWholeGradientDeclaredPartialWouldBeSummedTwice) {
  const Layout plain{.tp = 2}, rows{.tp = 2, .sequence_parallel = true};
  const auto partial = [](model::Parameter& p) { p.gradient = {AxisState::kPartial, AxisState::kPartial}; };
  EXPECT_EQ(declared_otherwise(llama(), plain, "model.norm.weight", partial),
            "tensor axis, head, backward input = model.norm.weight: its gradient is whole as norm's gradient gives "
            "it, and the parameter table declares it partial: it would be summed once too often");
  for (const Layout& layout : {plain, rows}) {
    for (const char* name : {"model.embed_tokens.weight", "model.layers.0.mlp.down_proj.weight",
                             "model.layers.1.self_attn.k_proj.weight", "lm_head.weight"}) {
      const std::string text = declared_otherwise(llama(), layout, name, partial);
      EXPECT_NE(text.find(name), std::string::npos) << text;
      EXPECT_NE(text.find("once too often"), std::string::npos) << text;
    }
  }
}

TEST(TensorFlow, AWeightCutAlongTheOtherDimensionIsRefused) {
  const Layout layout{.tp = 2};
  const std::string text =
      declared_otherwise(llama(), layout, "model.layers.0.mlp.down_proj.weight", [](model::Parameter& p) {
        p.split.dimension = 0;
        p.split.blocks.front().count = p.shape[0];
      });
  EXPECT_NE(text.find("model.layers.0.mlp.down_proj.weight"), std::string::npos) << text;
  EXPECT_NE(text.find("activated: is cut by features"), std::string::npos) << text;
}

TEST(TensorFlow, OneRankHasNothingToRefuse) {
  const std::string text = declared_otherwise(llama(), {}, "model.norm.weight",
                                              [](model::Parameter& p) { p.gradient.plain = AxisState::kPartial; });
  EXPECT_EQ(text, "");
}

}  // namespace
}  // namespace trireme::plan
