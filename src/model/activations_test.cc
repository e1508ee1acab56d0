#include "model/activations.h"

#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace trireme::model {
namespace {

Config gpt2(double residual_dropout) {
  Config config{
      .family = Family::kGpt2, .layers = 2, .hidden = 24, .heads = 4, .kv_heads = 4, .head_dim = 6, .ffn = 28};
  config.norm = NormKind::kLayerNorm;
  config.gated_mlp = false;
  config.position = PositionKind::kLearned;
  config.residual_dropout = residual_dropout;
  return config;
}
Config llama() {
  return {.family = Family::kLlama, .layers = 2, .hidden = 20, .heads = 4, .kv_heads = 2, .head_dim = 6, .ffn = 28};
}

using Names = std::vector<std::string>;
using NameSet = std::set<std::string>;

int unit_of(const Config& config, UnitKind kind) {
  return kind == UnitKind::kEmbedding ? 0 : kind == UnitKind::kDecoder ? 1 : unit_count(config) - 1;
}
std::vector<SavedActivation> saved_of(const Config& config, UnitKind kind) {
  return saved_activations(unit_flow(config, unit_of(config, kind)));
}

Names names(const std::vector<SavedActivation>& table) {
  Names all;
  for (const SavedActivation& entry : table) all.push_back(entry.value.name);
  return all;
}

NameSet in_group(const Config& config, UnitKind unit, Recompute recompute, ActivationGroup group) {
  NameSet found;
  for (const SavedActivation& entry : saved_of(config, unit)) {
    if (group_of(entry, recompute) == group) found.insert(entry.value.name);
  }
  return found;
}

TEST(ActivationsTest, EntriesOfALlamaDecoder) {
  EXPECT_EQ(names(saved_of(llama(), UnitKind::kDecoder)),
            (Names{"input",         "norm 1 output",   "norm 1 statistics", "query",
                   "key",           "value",           "attention output",  "log-sum-exp",
                   "middle",        "norm 2 output",   "norm 2 statistics", "up",
                   "gate",          "activated",       "output gradient",   "up gradient",
                   "gate gradient", "middle gradient", "query gradient",    "key gradient",
                   "value gradient"}));
}

// Behind a dropout a projection has a gradient of its own, and that of the sum is read by no weight.
TEST(ActivationsTest, EntriesOfAGpt2Decoder) {
  const Names forward = {"input",       "norm 1 output", "norm 1 statistics", "query, key, value", "attention output",
                         "log-sum-exp", "middle",        "norm 2 output",     "norm 2 statistics", "up",
                         "activated"};
  Names plain = forward;
  for (const char* name : {"output gradient", "up gradient", "middle gradient", "query, key, value gradient"}) {
    plain.emplace_back(name);
  }
  EXPECT_EQ(names(saved_of(gpt2(0.0), UnitKind::kDecoder)), plain);
  Names dropout = forward;
  for (const char* name : {"output gradient", "down projection gradient", "up gradient",
                           "attention output projection gradient", "query, key, value gradient"}) {
    dropout.emplace_back(name);
  }
  EXPECT_EQ(names(saved_of(gpt2(0.1), UnitKind::kDecoder)), dropout);
}

TEST(ActivationsTest, EntriesOfEmbeddingAndHead) {
  EXPECT_EQ(names(saved_of(llama(), UnitKind::kEmbedding)), (Names{"output gradient"}));
  EXPECT_EQ(names(saved_of(llama(), UnitKind::kHead)), (Names{"input", "final norm output", "final norm statistics"}));
}

TEST(ActivationsTest, GroupsOfADecoder) {
  using Group = ActivationGroup;
  const NameSet remade_under_selective = {"norm 1 output", "norm 2 output", "activated"};
  const NameSet for_weight = {"norm 1 output", "attention output", "norm 2 output", "activated"};
  const NameSet others = {"norm 1 statistics", "query", "key", "value", "log-sum-exp", "middle",
                          "norm 2 statistics", "gate",  "up"};
  const NameSet none;
  const auto groups = [](Recompute recompute, Group group) {
    return in_group(llama(), UnitKind::kDecoder, recompute, group);
  };
  for (Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
    EXPECT_EQ(groups(recompute, Group::kInput), (NameSet{"input"}));
    EXPECT_EQ(groups(recompute, Group::kOutputGradient), (NameSet{"output gradient"}));
    EXPECT_EQ(groups(recompute, Group::kGradient), (NameSet{"gate gradient", "up gradient", "middle gradient",
                                                            "query gradient", "key gradient", "value gradient"}));
  }
  EXPECT_EQ(groups(Recompute::kNone, Group::kKept), others);
  EXPECT_EQ(groups(Recompute::kNone, Group::kKeptForWeight), for_weight);
  EXPECT_EQ(groups(Recompute::kNone, Group::kRemade), none);
  EXPECT_EQ(groups(Recompute::kNone, Group::kRemadeForWeight), none);

  EXPECT_EQ(groups(Recompute::kSelective, Group::kKept), others);
  EXPECT_EQ(groups(Recompute::kSelective, Group::kKeptForWeight), (NameSet{"attention output"}));
  EXPECT_EQ(groups(Recompute::kSelective, Group::kRemade), none);
  EXPECT_EQ(groups(Recompute::kSelective, Group::kRemadeForWeight), remade_under_selective);

  EXPECT_EQ(groups(Recompute::kFull, Group::kKept), none);
  EXPECT_EQ(groups(Recompute::kFull, Group::kKeptForWeight), none);
  EXPECT_EQ(groups(Recompute::kFull, Group::kRemade), others);
  EXPECT_EQ(groups(Recompute::kFull, Group::kRemadeForWeight), for_weight);
}

TEST(ActivationsTest, GroupsOfTheHead) {
  using Group = ActivationGroup;
  const auto groups = [](Recompute recompute, Group group) {
    return in_group(llama(), UnitKind::kHead, recompute, group);
  };
  EXPECT_EQ(groups(Recompute::kNone, Group::kKept), (NameSet{"final norm output", "final norm statistics"}));
  EXPECT_EQ(groups(Recompute::kSelective, Group::kKept), (NameSet{"final norm statistics"}));
  EXPECT_EQ(groups(Recompute::kSelective, Group::kRemade), (NameSet{"final norm output"}));
  EXPECT_EQ(groups(Recompute::kFull, Group::kRemade), (NameSet{"final norm output", "final norm statistics"}));
  for (Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
    EXPECT_TRUE(groups(recompute, Group::kKeptForWeight).empty());
    EXPECT_TRUE(groups(recompute, Group::kRemadeForWeight).empty());
  }
}

TEST(ActivationsTest, SplitsAndStatistics) {
  const NameSet tensor = {"query before norm",
                          "key before norm",
                          "query",
                          "key",
                          "value",
                          "query, key, value",
                          "attention output",
                          "log-sum-exp",
                          "gate",
                          "up",
                          "activated",
                          "gate gradient",
                          "up gradient",
                          "query before norm gradient",
                          "key before norm gradient",
                          "value gradient",
                          "query, key, value gradient"};
  const NameSet statistics = {"norm 1 statistics", "norm 2 statistics", "final norm statistics", "log-sum-exp"};
  NameSet seen;
  Config with_head_norms = llama();
  with_head_norms.qk_norm = QkNorm::kHeads;
  for (const Config& config : {with_head_norms, gpt2(0.1)}) {
    for (UnitKind unit : {UnitKind::kEmbedding, UnitKind::kDecoder, UnitKind::kHead}) {
      for (const SavedActivation& entry : saved_of(config, unit)) {
        const std::string& name = entry.value.name;
        seen.insert(name);
        EXPECT_EQ(entry.value.in_stream(), !tensor.contains(name)) << name;
        EXPECT_EQ(entry.value.statistics, statistics.contains(name)) << name;
        EXPECT_EQ(entry.gradient, name.ends_with("gradient")) << name;
        EXPECT_TRUE(entry.for_weight_pass || !entry.gradient) << name;
      }
    }
  }
  for (const std::string& name : tensor) EXPECT_TRUE(seen.contains(name)) << name;
}

// Two ranks of tensor parallelism, 10 tokens, with sequence parallelism.
TEST(ActivationsTest, Shapes) {
  const Config config = llama();
  const LocalWidths widths{.tokens = 10, .sequence_tokens = 5, .heads = 2, .kv_heads = 1, .tp = 2};
  const auto expect_shape = [&](const Config& model, UnitKind unit, const std::string& name, std::int64_t rows,
                                std::int64_t columns) {
    for (const SavedActivation& entry : saved_of(model, unit)) {
      if (entry.value.name != name) continue;
      const ActivationShape shape = local_shape(entry.value, widths);
      EXPECT_EQ(shape.rows, rows) << name;
      EXPECT_EQ(shape.columns, columns) << name;
      return;
    }
    ADD_FAILURE() << name << " is absent";
  };
  expect_shape(config, UnitKind::kDecoder, "input", 5, 20);
  expect_shape(config, UnitKind::kDecoder, "norm 1 output", 5, 20);
  expect_shape(config, UnitKind::kDecoder, "norm 1 statistics", 5, 2);
  expect_shape(config, UnitKind::kDecoder, "query", 10, 12);
  expect_shape(config, UnitKind::kDecoder, "key", 10, 6);
  expect_shape(config, UnitKind::kDecoder, "value gradient", 10, 6);
  expect_shape(config, UnitKind::kDecoder, "attention output", 10, 12);
  expect_shape(config, UnitKind::kDecoder, "log-sum-exp", 2, 10);
  expect_shape(config, UnitKind::kDecoder, "middle", 5, 20);
  expect_shape(config, UnitKind::kDecoder, "gate", 10, 14);
  expect_shape(config, UnitKind::kDecoder, "middle gradient", 5, 20);
  expect_shape(config, UnitKind::kHead, "final norm statistics", 5, 2);
  expect_shape(config, UnitKind::kEmbedding, "output gradient", 5, 20);
  expect_shape(gpt2(0.0), UnitKind::kDecoder, "query, key, value", 10, 36);
}

TEST(ActivationsTest, NamesOfRecomputeKinds) {
  for (Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
    EXPECT_EQ(parse_recompute(recompute_name(recompute)).or_throw(), recompute);
  }
  EXPECT_EQ(recompute_name(Recompute::kSelective), "selective");
  EXPECT_EQ(parse_recompute("some").failure().sentence(),
            "layout.recompute = some: there is no such kind of recompute; nearest legal: none, selective, full");
}

}  // namespace
}  // namespace trireme::model
