#include "model/parameters.h"

#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace trireme::model {
namespace {

ParameterTable shipped(const std::string& name) {
  const std::string path = std::string(TRIREME_SOURCE_DIR) + "/examples/models/" + name;
  return make_parameter_table(load_config(posix_env(), path).or_throw());
}

Config small_llama() {
  return {.family = Family::kLlama,
          .layers = 3,
          .hidden = 20,
          .heads = 4,
          .kv_heads = 2,
          .head_dim = 6,
          .ffn = 28,
          .vocabulary = 50,
          .max_positions = 16};
}

Config small_gpt2() {
  Config config{.family = Family::kGpt2,
                .layers = 2,
                .hidden = 24,
                .heads = 4,
                .kv_heads = 4,
                .head_dim = 6,
                .ffn = 28,
                .vocabulary = 50,
                .max_positions = 16};
  config.norm = NormKind::kLayerNorm;
  config.activation = Activation::kGeluTanh;
  config.gated_mlp = false;
  config.attention_input_bias = config.attention_output_bias = config.mlp_bias = true;
  config.tied_embeddings = true;
  config.position = PositionKind::kLearned;
  return config;
}

const Parameter& named(const ParameterTable& table, std::string_view name) {
  const int index = table.find(name);
  if (index < 0) throw InternalError("no parameter " + std::string(name));
  return table.parameters[static_cast<std::size_t>(index)];
}

TEST(ParametersTest, ExactCountsOfShippedModels) {
  EXPECT_EQ(shipped("gpt2").total(), 124'439'808);
  EXPECT_EQ(shipped("gpt2-xl").total(), 1'557'611'200);
  EXPECT_EQ(shipped("llama-2-7b").total(), 6'738'415'616);
  EXPECT_EQ(shipped("llama-2-70b").total(), 68'976'648'192);
  EXPECT_EQ(shipped("llama-3-8b").total(), 8'030'261'248);
  EXPECT_EQ(shipped("llama-3-70b").total(), 70'553'706'496);
  EXPECT_EQ(shipped("llama-3.1-405b").total(), 405'853'388'800);
  EXPECT_EQ(shipped("llama-3.2-1b").total(), 1'235'814'400);
  EXPECT_EQ(shipped("tinyllama-1.1b").total(), 1'100'048'384);
  EXPECT_EQ(shipped("mistral-7b").total(), 7'241'732'096);
  EXPECT_EQ(shipped("qwen2.5-7b").total(), 7'615'616'512);
  EXPECT_EQ(shipped("qwen3-8b").total(), 8'190'735'360);
}

TEST(ParametersTest, NamesAndShapesOfGpt2) {
  const ParameterTable table = make_parameter_table(small_gpt2());
  const std::vector<std::pair<std::string, std::vector<std::int64_t>>> first = {
      {"transformer.wte.weight", {50, 24}},
      {"transformer.wpe.weight", {16, 24}},
      {"transformer.h.0.ln_1.weight", {24}},
      {"transformer.h.0.ln_1.bias", {24}},
      {"transformer.h.0.attn.c_attn.weight", {24, 72}},
      {"transformer.h.0.attn.c_attn.bias", {72}},
      {"transformer.h.0.attn.c_proj.weight", {24, 24}},
      {"transformer.h.0.attn.c_proj.bias", {24}},
      {"transformer.h.0.ln_2.weight", {24}},
      {"transformer.h.0.ln_2.bias", {24}},
      {"transformer.h.0.mlp.c_fc.weight", {24, 28}},
      {"transformer.h.0.mlp.c_fc.bias", {28}},
      {"transformer.h.0.mlp.c_proj.weight", {28, 24}},
      {"transformer.h.0.mlp.c_proj.bias", {24}},
      {"transformer.h.1.ln_1.weight", {24}},
  };
  ASSERT_EQ(table.parameters.size(), 2u + 2 * 12 + 2);
  for (std::size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(table.parameters[i].name, first[i].first);
    EXPECT_EQ(table.parameters[i].shape, first[i].second) << first[i].first;
  }
  EXPECT_EQ(table.parameters[26].name, "transformer.ln_f.weight");
  EXPECT_EQ(table.parameters[27].name, "transformer.ln_f.bias");
  EXPECT_TRUE(table.parameters[0].also_used_by_head);

  Config untied = small_gpt2();
  untied.tied_embeddings = false;
  const ParameterTable with_head = make_parameter_table(untied);
  EXPECT_EQ(with_head.parameters.back().name, "lm_head.weight");
  EXPECT_EQ(with_head.parameters.back().shape, (std::vector<std::int64_t>{50, 24}));
  EXPECT_FALSE(with_head.parameters[0].also_used_by_head);
  EXPECT_EQ(with_head.total(), table.total() + 50 * 24);
}

TEST(ParametersTest, NamesAndShapesOfLlama) {
  const ParameterTable table = make_parameter_table(small_llama());
  const std::vector<std::pair<std::string, std::vector<std::int64_t>>> first = {
      {"model.embed_tokens.weight", {50, 20}},
      {"model.layers.0.input_layernorm.weight", {20}},
      {"model.layers.0.self_attn.q_proj.weight", {24, 20}},
      {"model.layers.0.self_attn.k_proj.weight", {12, 20}},
      {"model.layers.0.self_attn.v_proj.weight", {12, 20}},
      {"model.layers.0.self_attn.o_proj.weight", {20, 24}},
      {"model.layers.0.post_attention_layernorm.weight", {20}},
      {"model.layers.0.mlp.gate_proj.weight", {28, 20}},
      {"model.layers.0.mlp.up_proj.weight", {28, 20}},
      {"model.layers.0.mlp.down_proj.weight", {20, 28}},
      {"model.layers.1.input_layernorm.weight", {20}},
  };
  ASSERT_EQ(table.parameters.size(), 1u + 3 * 9 + 2);
  for (std::size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(table.parameters[i].name, first[i].first);
    EXPECT_EQ(table.parameters[i].shape, first[i].second) << first[i].first;
  }
  EXPECT_EQ(table.parameters[28].name, "model.norm.weight");
  EXPECT_EQ(table.parameters[29].name, "lm_head.weight");
}

TEST(ParametersTest, AttentionBiasOfLlamaIsOnAllFourProjections) {
  Config config = small_llama();
  config.attention_input_bias = config.attention_output_bias = config.mlp_bias = true;
  const ParameterTable table = make_parameter_table(config);
  EXPECT_EQ(named(table, "model.layers.1.self_attn.q_proj.bias").shape, (std::vector<std::int64_t>{24}));
  EXPECT_EQ(named(table, "model.layers.1.self_attn.k_proj.bias").shape, (std::vector<std::int64_t>{12}));
  EXPECT_EQ(named(table, "model.layers.1.self_attn.v_proj.bias").shape, (std::vector<std::int64_t>{12}));
  EXPECT_EQ(named(table, "model.layers.1.self_attn.o_proj.bias").shape, (std::vector<std::int64_t>{20}));
  EXPECT_EQ(named(table, "model.layers.1.mlp.gate_proj.bias").shape, (std::vector<std::int64_t>{28}));
  EXPECT_EQ(named(table, "model.layers.1.mlp.up_proj.bias").shape, (std::vector<std::int64_t>{28}));
  EXPECT_EQ(named(table, "model.layers.1.mlp.down_proj.bias").shape, (std::vector<std::int64_t>{20}));
  EXPECT_EQ(named(table, "model.layers.1.self_attn.o_proj.bias").gradient.sequence_parallel, AxisState::kPartial);
  EXPECT_EQ(named(table, "model.layers.1.mlp.up_proj.bias").gradient.sequence_parallel, AxisState::kSharded);
}

TEST(ParametersTest, SplitsOfLlama) {
  const ParameterTable table = make_parameter_table(small_llama());
  const auto expect_split = [&](std::string_view name, int dimension, PieceKind kind, std::int64_t count,
                                std::int64_t piece) {
    const Parameter& parameter = named(table, name);
    ASSERT_EQ(parameter.split.dimension, dimension) << name;
    ASSERT_EQ(parameter.split.blocks.size(), 1u) << name;
    EXPECT_EQ(parameter.split.blocks[0].kind, kind) << name;
    EXPECT_EQ(parameter.split.blocks[0].count, count) << name;
    EXPECT_EQ(parameter.split.blocks[0].piece, piece) << name;
  };
  expect_split("model.embed_tokens.weight", 0, PieceKind::kVocabulary, 50, 1);
  expect_split("model.layers.0.self_attn.q_proj.weight", 0, PieceKind::kHeads, 4, 6);
  expect_split("model.layers.0.self_attn.k_proj.weight", 0, PieceKind::kKvHeads, 2, 6);
  expect_split("model.layers.0.self_attn.v_proj.weight", 0, PieceKind::kKvHeads, 2, 6);
  expect_split("model.layers.0.self_attn.o_proj.weight", 1, PieceKind::kHeads, 4, 6);
  expect_split("model.layers.0.mlp.gate_proj.weight", 0, PieceKind::kFeatures, 28, 1);
  expect_split("model.layers.0.mlp.up_proj.weight", 0, PieceKind::kFeatures, 28, 1);
  expect_split("model.layers.0.mlp.down_proj.weight", 1, PieceKind::kFeatures, 28, 1);
  expect_split("lm_head.weight", 0, PieceKind::kVocabulary, 50, 1);
  EXPECT_FALSE(named(table, "model.norm.weight").split.split());
}

TEST(ParametersTest, FusedQkvHasThreeBlocks) {
  const ParameterTable table = make_parameter_table(small_gpt2());
  for (const auto& [name, dimension] :
       {std::pair{"transformer.h.1.attn.c_attn.weight", 1}, std::pair{"transformer.h.1.attn.c_attn.bias", 0}}) {
    const TensorSplit& split = named(table, name).split;
    EXPECT_EQ(split.dimension, dimension);
    ASSERT_EQ(split.blocks.size(), 3u);
    EXPECT_EQ(split.blocks[0].kind, PieceKind::kHeads);
    EXPECT_EQ(split.blocks[1].kind, PieceKind::kKvHeads);
    EXPECT_EQ(split.blocks[2].kind, PieceKind::kKvHeads);
    for (const SplitBlock& block : split.blocks) EXPECT_EQ(block.count * block.piece, 24);
  }
  EXPECT_EQ(named(table, "transformer.h.1.attn.c_proj.weight").split.dimension, 0);
  EXPECT_EQ(named(table, "transformer.h.1.mlp.c_fc.weight").split.dimension, 1);
  EXPECT_EQ(named(table, "transformer.h.1.mlp.c_proj.weight").split.dimension, 0);
  EXPECT_EQ(named(table, "transformer.wte.weight").split.dimension, 0);
}

// What is cut gives whole gradients of its slice; what is replicated is whole, or a part under sequence parallelism.
TEST(ParametersTest, GradientDeclarationsFollowTheCut) {
  for (const Config& config : {small_gpt2(), small_llama()}) {
    for (const Parameter& parameter : make_parameter_table(config).parameters) {
      if (parameter.split.split()) {
        EXPECT_EQ(parameter.value, AxisState::kSharded) << parameter.name;
        EXPECT_EQ(parameter.gradient.plain, AxisState::kSharded) << parameter.name;
        EXPECT_EQ(parameter.gradient.sequence_parallel, AxisState::kSharded) << parameter.name;
        std::int64_t extent = 0;
        for (const SplitBlock& block : parameter.split.blocks) extent += block.count * block.piece;
        EXPECT_EQ(extent, parameter.shape[static_cast<std::size_t>(parameter.split.dimension)]) << parameter.name;
      } else {
        EXPECT_EQ(parameter.value, AxisState::kReplicated) << parameter.name;
        EXPECT_EQ(parameter.gradient.plain, AxisState::kReplicated) << parameter.name;
        EXPECT_EQ(parameter.gradient.sequence_parallel, AxisState::kPartial) << parameter.name;
      }
    }
  }
}

TEST(ParametersTest, ReplicatedTensorsAreNormsOutputBiasesAndPositions) {
  std::set<Role> replicated;
  for (const Parameter& parameter : make_parameter_table(small_gpt2()).parameters) {
    if (!parameter.split.split()) replicated.insert(parameter.role);
  }
  EXPECT_EQ(replicated, (std::set<Role>{Role::kPositionEmbedding, Role::kNorm1Weight, Role::kNorm1Bias,
                                        Role::kAttentionOutputBias, Role::kNorm2Weight, Role::kNorm2Bias,
                                        Role::kDownBias, Role::kFinalNormWeight, Role::kFinalNormBias}));
}

TEST(ParametersTest, InitialisersAndDecay) {
  Config config = small_gpt2();
  config.initializer_range = 0.04;
  const ParameterTable table = make_parameter_table(config);
  for (const Parameter& parameter : table.parameters) {
    EXPECT_EQ(parameter.decay, parameter.shape.size() == 2) << parameter.name;
  }
  const auto expect_init = [&](std::string_view name, InitKind kind, double deviation) {
    EXPECT_EQ(named(table, name).init.kind, kind) << name;
    EXPECT_DOUBLE_EQ(named(table, name).init.standard_deviation, deviation) << name;
  };
  expect_init("transformer.wte.weight", InitKind::kNormal, 0.04);
  expect_init("transformer.wpe.weight", InitKind::kNormal, 0.04);
  expect_init("transformer.h.0.attn.c_attn.weight", InitKind::kNormal, 0.04);
  expect_init("transformer.h.0.mlp.c_fc.weight", InitKind::kNormal, 0.04);
  expect_init("transformer.h.0.attn.c_proj.weight", InitKind::kNormal, 0.02);  // 1 / sqrt(2 * 2 layers)
  expect_init("transformer.h.0.mlp.c_proj.weight", InitKind::kNormal, 0.02);
  expect_init("transformer.h.0.attn.c_proj.bias", InitKind::kZeros, 0.0);
  expect_init("transformer.h.0.attn.c_attn.bias", InitKind::kZeros, 0.0);
  expect_init("transformer.h.0.ln_1.weight", InitKind::kOnes, 0.0);
  expect_init("transformer.h.0.ln_1.bias", InitKind::kZeros, 0.0);

  const ParameterTable llama = make_parameter_table(small_llama());
  EXPECT_EQ(named(llama, "model.layers.0.mlp.down_proj.weight").init.standard_deviation, 0.02);
  EXPECT_EQ(named(llama, "lm_head.weight").init.standard_deviation, 0.02);
}

TEST(ParametersTest, UnitsAreARow) {
  const Config config = small_llama();
  EXPECT_EQ(unit_count(config), 5);
  EXPECT_EQ(unit_kind(config, 0), UnitKind::kEmbedding);
  EXPECT_EQ(unit_kind(config, 1), UnitKind::kDecoder);
  EXPECT_EQ(unit_kind(config, 3), UnitKind::kDecoder);
  EXPECT_EQ(unit_kind(config, 4), UnitKind::kHead);
  EXPECT_EQ(unit_name(config, 0), "embedding");
  EXPECT_EQ(unit_name(config, 2), "layer 1");
  EXPECT_EQ(unit_name(config, 4), "head");
  EXPECT_THROW(unit_kind(config, 5), InternalError);
  EXPECT_THROW(unit_kind(config, -1), InternalError);
}

TEST(ParametersTest, FindsByUnitAndRoleAndByName) {
  Config biased = small_llama();
  biased.attention_input_bias = biased.attention_output_bias = biased.mlp_bias = true;
  Config tied = small_llama();
  tied.tied_embeddings = true;
  for (const Config& config : {small_gpt2(), small_llama(), biased, tied}) {
    const ParameterTable table = make_parameter_table(config);
    std::map<std::pair<int, Role>, int> places;
    std::pair<int, Role> before{-1, Role::kTokenEmbedding};
    for (std::size_t i = 0; i < table.parameters.size(); ++i) {
      const std::pair<int, Role> place{table.parameters[i].unit, table.parameters[i].role};
      EXPECT_LT(before, place) << table.parameters[i].name;
      before = place;
      places[place] = static_cast<int>(i);
      EXPECT_EQ(table.find(table.parameters[i].name), static_cast<int>(i));
    }
    const int head = unit_count(config) - 1;
    if (config.tied_embeddings) places[{head, Role::kHeadWeight}] = 0;
    for (int unit = 0; unit <= head; ++unit) {
      for (int role = 0; role < kRoleCount; ++role) {
        const auto at = places.find({unit, static_cast<Role>(role)});
        EXPECT_EQ(table.find(unit, static_cast<Role>(role)), at == places.end() ? -1 : at->second);
      }
    }
    EXPECT_EQ(table.find("model.layers.0.nothing"), -1);
    EXPECT_EQ(table.find(head + 1, Role::kNorm1Weight), -1);
  }
}

TEST(ParametersTest, RolesHaveDistinctNames) {
  std::set<std::string_view> names;
  for (int role = 0; role < kRoleCount; ++role) names.insert(role_name(static_cast<Role>(role)));
  EXPECT_EQ(names.size(), static_cast<std::size_t>(kRoleCount));
  EXPECT_EQ(role_name(Role::kHeadWeight), "head weight");
  EXPECT_EQ(role_name(Role::kUpBias), "up bias");
}

TEST(ParametersTest, RowsAndColumns) {
  const ParameterTable table = make_parameter_table(small_llama());
  EXPECT_EQ(named(table, "model.layers.0.self_attn.o_proj.weight").rows(), 20);
  EXPECT_EQ(named(table, "model.layers.0.self_attn.o_proj.weight").columns(), 24);
  EXPECT_EQ(named(table, "model.norm.weight").columns(), 1);
  EXPECT_EQ(named(table, "model.norm.weight").elements(), 20);
}

}  // namespace
}  // namespace trireme::model
