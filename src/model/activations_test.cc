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

std::vector<Saved> names(const std::vector<SavedActivation>& table) {
  std::vector<Saved> all;
  for (const SavedActivation& entry : table) all.push_back(entry.name);
  return all;
}

std::set<Saved> in_group(const Config& config, UnitKind unit, Recompute recompute, ActivationGroup group) {
  std::set<Saved> found;
  for (const SavedActivation& entry : activation_table(config, unit)) {
    if (group_of(entry, recompute) == group) found.insert(entry.name);
  }
  return found;
}

TEST(ActivationsTest, EntriesOfALlamaDecoder) {
  EXPECT_EQ(
      names(activation_table(llama(), UnitKind::kDecoder)),
      (std::vector<Saved>{Saved::kInput,        Saved::kNorm1Output,    Saved::kNorm1Stats,      Saved::kQuery,
                          Saved::kKey,          Saved::kValue,          Saved::kAttentionOutput, Saved::kLogSumExp,
                          Saved::kMiddle,       Saved::kNorm2Output,    Saved::kNorm2Stats,      Saved::kGate,
                          Saved::kUp,           Saved::kActivated,      Saved::kOutputGradient,  Saved::kGateGradient,
                          Saved::kUpGradient,   Saved::kMiddleGradient, Saved::kQueryGradient,   Saved::kKeyGradient,
                          Saved::kValueGradient}));
}

TEST(ActivationsTest, EntriesOfAGpt2Decoder) {
  const std::vector<Saved> forward = {
      Saved::kInput,  Saved::kNorm1Output, Saved::kNorm1Stats, Saved::kQkv, Saved::kAttentionOutput, Saved::kLogSumExp,
      Saved::kMiddle, Saved::kNorm2Output, Saved::kNorm2Stats, Saved::kUp,  Saved::kActivated};
  std::vector<Saved> plain = forward;
  for (Saved name : {Saved::kOutputGradient, Saved::kUpGradient, Saved::kMiddleGradient, Saved::kQkvGradient}) {
    plain.push_back(name);
  }
  EXPECT_EQ(names(activation_table(gpt2(0.0), UnitKind::kDecoder)), plain);
  std::vector<Saved> dropout = forward;
  for (Saved name : {Saved::kOutputGradient, Saved::kDownGradient, Saved::kUpGradient, Saved::kMiddleGradient,
                     Saved::kAttentionOutputProjectionGradient, Saved::kQkvGradient}) {
    dropout.push_back(name);
  }
  EXPECT_EQ(names(activation_table(gpt2(0.1), UnitKind::kDecoder)), dropout);
}

TEST(ActivationsTest, EntriesOfEmbeddingAndHead) {
  EXPECT_EQ(names(activation_table(llama(), UnitKind::kEmbedding)), (std::vector<Saved>{Saved::kOutputGradient}));
  EXPECT_EQ(names(activation_table(llama(), UnitKind::kHead)),
            (std::vector<Saved>{Saved::kInput, Saved::kFinalNormOutput, Saved::kFinalNormStats}));
}

TEST(ActivationsTest, GroupsOfADecoder) {
  using Group = ActivationGroup;
  const std::set<Saved> remade_under_selective = {Saved::kNorm1Output, Saved::kNorm2Output, Saved::kActivated};
  const std::set<Saved> for_weight = {Saved::kNorm1Output, Saved::kAttentionOutput, Saved::kNorm2Output,
                                      Saved::kActivated};
  const std::set<Saved> others = {Saved::kNorm1Stats, Saved::kQuery,     Saved::kKey,
                                  Saved::kValue,      Saved::kLogSumExp, Saved::kMiddle,
                                  Saved::kNorm2Stats, Saved::kGate,      Saved::kUp};
  const std::set<Saved> none;
  const auto groups = [](Recompute recompute, Group group) {
    return in_group(llama(), UnitKind::kDecoder, recompute, group);
  };
  for (Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
    EXPECT_EQ(groups(recompute, Group::kInput), (std::set<Saved>{Saved::kInput}));
    EXPECT_EQ(groups(recompute, Group::kOutputGradient), (std::set<Saved>{Saved::kOutputGradient}));
    EXPECT_EQ(groups(recompute, Group::kGradient),
              (std::set<Saved>{Saved::kGateGradient, Saved::kUpGradient, Saved::kMiddleGradient, Saved::kQueryGradient,
                               Saved::kKeyGradient, Saved::kValueGradient}));
  }
  EXPECT_EQ(groups(Recompute::kNone, Group::kKept), others);
  EXPECT_EQ(groups(Recompute::kNone, Group::kKeptForWeight), for_weight);
  EXPECT_EQ(groups(Recompute::kNone, Group::kRemade), none);
  EXPECT_EQ(groups(Recompute::kNone, Group::kRemadeForWeight), none);

  EXPECT_EQ(groups(Recompute::kSelective, Group::kKept), others);
  EXPECT_EQ(groups(Recompute::kSelective, Group::kKeptForWeight), (std::set<Saved>{Saved::kAttentionOutput}));
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
  EXPECT_EQ(groups(Recompute::kNone, Group::kKept), (std::set<Saved>{Saved::kFinalNormOutput, Saved::kFinalNormStats}));
  EXPECT_EQ(groups(Recompute::kSelective, Group::kKept), (std::set<Saved>{Saved::kFinalNormStats}));
  EXPECT_EQ(groups(Recompute::kSelective, Group::kRemade), (std::set<Saved>{Saved::kFinalNormOutput}));
  EXPECT_EQ(groups(Recompute::kFull, Group::kRemade),
            (std::set<Saved>{Saved::kFinalNormOutput, Saved::kFinalNormStats}));
  for (Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
    EXPECT_TRUE(groups(recompute, Group::kKeptForWeight).empty());
    EXPECT_TRUE(groups(recompute, Group::kRemadeForWeight).empty());
  }
}

TEST(ActivationsTest, SplitsAndStatistics) {
  const std::set<Saved> tensor = {Saved::kQueryBeforeNorm,
                                  Saved::kKeyBeforeNorm,
                                  Saved::kQuery,
                                  Saved::kKey,
                                  Saved::kValue,
                                  Saved::kQkv,
                                  Saved::kAttentionOutput,
                                  Saved::kLogSumExp,
                                  Saved::kGate,
                                  Saved::kUp,
                                  Saved::kActivated,
                                  Saved::kGateGradient,
                                  Saved::kUpGradient,
                                  Saved::kQueryGradient,
                                  Saved::kKeyGradient,
                                  Saved::kValueGradient,
                                  Saved::kQkvGradient};
  const std::set<Saved> statistics = {Saved::kNorm1Stats, Saved::kNorm2Stats, Saved::kFinalNormStats,
                                      Saved::kLogSumExp};
  std::set<Saved> seen;
  Config with_head_norms = llama();
  with_head_norms.qk_norm = true;
  for (const Config& config : {with_head_norms, gpt2(0.1)}) {
    for (UnitKind unit : {UnitKind::kEmbedding, UnitKind::kDecoder, UnitKind::kHead}) {
      for (const SavedActivation& entry : activation_table(config, unit)) {
        seen.insert(entry.name);
        EXPECT_EQ(entry.split, tensor.contains(entry.name) ? ActivationSplit::kTensor : ActivationSplit::kSequence)
            << saved_name(entry.name);
        EXPECT_EQ(entry.statistics, statistics.contains(entry.name)) << saved_name(entry.name);
        EXPECT_EQ(entry.gradient, entry.name >= Saved::kOutputGradient) << saved_name(entry.name);
        EXPECT_TRUE(entry.for_weight_pass || !entry.gradient) << saved_name(entry.name);
        EXPECT_EQ(entry.dtype, DType::kF32);
      }
    }
  }
  EXPECT_EQ(seen.size(), static_cast<std::size_t>(kSavedCount));  // each name is used somewhere
}

// Two ranks of tensor parallelism, 10 tokens, with sequence parallelism.
TEST(ActivationsTest, Shapes) {
  const Config config = llama();
  const LocalWidths widths{.tokens = 10, .sequence_tokens = 5, .heads = 2, .kv_heads = 1, .ffn = 14};
  const auto expect_shape = [&](const Config& model, UnitKind unit, Saved name, std::int64_t rows,
                                std::int64_t columns) {
    for (const SavedActivation& entry : activation_table(model, unit)) {
      if (entry.name != name) continue;
      const ActivationShape shape = activation_shape(model, entry, widths);
      EXPECT_EQ(shape.rows, rows) << saved_name(name);
      EXPECT_EQ(shape.columns, columns) << saved_name(name);
      return;
    }
    ADD_FAILURE() << saved_name(name) << " is absent";
  };
  expect_shape(config, UnitKind::kDecoder, Saved::kInput, 5, 20);
  expect_shape(config, UnitKind::kDecoder, Saved::kNorm1Output, 5, 20);
  expect_shape(config, UnitKind::kDecoder, Saved::kNorm1Stats, 5, 2);
  expect_shape(config, UnitKind::kDecoder, Saved::kQuery, 10, 12);
  expect_shape(config, UnitKind::kDecoder, Saved::kKey, 10, 6);
  expect_shape(config, UnitKind::kDecoder, Saved::kValueGradient, 10, 6);
  expect_shape(config, UnitKind::kDecoder, Saved::kAttentionOutput, 10, 12);
  expect_shape(config, UnitKind::kDecoder, Saved::kLogSumExp, 2, 10);
  expect_shape(config, UnitKind::kDecoder, Saved::kMiddle, 5, 20);
  expect_shape(config, UnitKind::kDecoder, Saved::kGate, 10, 14);
  expect_shape(config, UnitKind::kDecoder, Saved::kMiddleGradient, 5, 20);
  expect_shape(config, UnitKind::kHead, Saved::kFinalNormStats, 5, 2);
  expect_shape(config, UnitKind::kEmbedding, Saved::kOutputGradient, 5, 20);
  expect_shape(gpt2(0.0), UnitKind::kDecoder, Saved::kQkv, 10, 24);
}

TEST(ActivationsTest, NamesOfRecomputeKinds) {
  for (Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
    EXPECT_EQ(parse_recompute(recompute_name(recompute)).or_throw(), recompute);
  }
  EXPECT_EQ(recompute_name(Recompute::kSelective), "selective");
  EXPECT_EQ(parse_recompute("some").failure().sentence(),
            "layout.recompute = some: there is no such kind of recompute; nearest legal: none, selective, full");
}

TEST(ActivationsTest, SavedTensorsHaveDistinctNames) {
  std::set<std::string_view> all;
  for (int i = 0; i < kSavedCount; ++i) all.insert(saved_name(static_cast<Saved>(i)));
  EXPECT_EQ(all.size(), static_cast<std::size_t>(kSavedCount));
  EXPECT_EQ(saved_name(Saved::kQkvGradient), "query, key, value gradient");
  EXPECT_EQ(saved_name(Saved::kOutputGradient), "output gradient");
}

}  // namespace
}  // namespace trireme::model
