#include "model/flops.h"

#include <string>

#include <gtest/gtest.h>

#include "model/parameters.h"

namespace trireme::model {
namespace {

// GPT of the published tables: f = 4h, 51,200 tokens, sequences of 2,048.
Config gpt(std::int64_t layers, std::int64_t hidden, std::int64_t heads) {
  Config config{.family = Family::kGpt2, .layers = layers, .hidden = hidden, .heads = heads, .kv_heads = heads};
  config.head_dim = hidden / heads;
  config.ffn = 4 * hidden;
  config.vocabulary = 51'200;
  config.max_positions = 2048;
  config.gated_mlp = false;
  config.position = PositionKind::kLearned;
  return config;
}
constexpr std::int64_t kSequence = 2048;

struct Published {
  std::int64_t layers, hidden, heads, batch;
  double model, full;
};
// 22B, 175B, 530B and 1T of Korthikanti et al. 2022.
constexpr Published kPublished[] = {
    {48, 6144, 64, 4, 1.143561e15, 1.519594e15},
    {96, 12288, 96, 64, 1.410915e17, 1.879571e17},
    {105, 20480, 128, 280, 1.852230e18, 2.468438e18},
    {128, 25600, 160, 512, 6.425876e18, 8.565086e18},
};

TEST(FlopsTest, PublishedModels) {
  for (const Published& row : kPublished) {
    const Config config = gpt(row.layers, row.hidden, row.heads);
    EXPECT_NEAR(model_flops(config, row.batch, kSequence).count / row.model, 1.0, 5e-7) << row.hidden;
    EXPECT_NEAR(hardware_flops(config, row.batch, kSequence, Recompute::kFull).count / row.full, 1.0, 5e-7)
        << row.hidden;
  }
}

TEST(FlopsTest, ClosedForms) {
  for (const Published& row : kPublished) {
    const Config config = gpt(row.layers, row.hidden, row.heads);
    const double b = static_cast<double>(row.batch);
    const double l = static_cast<double>(row.layers);
    const double h = static_cast<double>(row.hidden);
    const double s = 2048, v = 51'200;
    const double once = 72 * b * l * s * h * h * (1 + s / (6 * h) + v / (12 * h * l));
    const double with_full = 96 * b * l * s * h * h * (1 + s / (6 * h) + v / (16 * h * l));
    EXPECT_NEAR(model_flops(config, row.batch, kSequence).count / once, 1.0, 1e-14);
    EXPECT_NEAR(hardware_flops(config, row.batch, kSequence, Recompute::kFull).count / with_full, 1.0, 1e-14);
  }
}

TEST(FlopsTest, RecomputeThatIsNotFullAddsNothing) {
  const Config config = gpt(4, 64, 4);
  const double model = model_flops(config, 3, 32).count;
  EXPECT_EQ(hardware_flops(config, 3, 32, Recompute::kNone).count, model);
  EXPECT_EQ(hardware_flops(config, 3, 32, Recompute::kSelective).count, model);
  const UnitFlops layer = forward_flops(unit_flow(config, 1), 3, 32);
  EXPECT_EQ(hardware_flops(config, 3, 32, Recompute::kFull).count, model + 4 * (layer.gemm + layer.attention_core));
}

// By hand: grouped heads, heads * head_dim != hidden, gated MLP.
TEST(FlopsTest, UnitsOfALlama) {
  const Config config{.family = Family::kLlama,
                      .layers = 2,
                      .hidden = 20,
                      .heads = 4,
                      .kv_heads = 2,
                      .head_dim = 6,
                      .ffn = 28,
                      .vocabulary = 50};
  const UnitFlops layer = forward_flops(unit_flow(config, 1), 2, 5);
  EXPECT_EQ(layer.gemm, 2.0 * 10 * (20 * 24 + 2 * 20 * 12 + 24 * 20 + 3 * 20 * 28));
  EXPECT_EQ(layer.attention_core, 4.0 * 2 * 5 * 5 * 24);
  EXPECT_EQ(forward_flops(unit_flow(config, 3), 2, 5).gemm, 2.0 * 10 * 20 * 50);
  EXPECT_EQ(forward_flops(unit_flow(config, 3), 2, 5).attention_core, 0.0);
  EXPECT_EQ(forward_flops(unit_flow(config, 0), 2, 5).gemm, 0.0);
  EXPECT_EQ(model_flops(config, 2, 5).count, 3.0 * (2 * (layer.gemm + layer.attention_core) + 2.0 * 10 * 20 * 50));
}

// A window that begins in the third of four layers, and one that a sequence does not reach.
TEST(FlopsTest, WindowsAreCountedByLayer) {
  Config config{.family = Family::kQwen2, .layers = 4, .hidden = 64, .heads = 4, .kv_heads = 4, .head_dim = 16};
  const double all = layers_flops(config, 1, 32).attention_core;
  config.sliding_window = 8;
  config.first_window_layer = 2;
  EXPECT_EQ(layers_flops(config, 1, 32).attention_core, all * (2 + 2 * 0.25) / 4);
  EXPECT_EQ(layers_flops(config, 1, 8).attention_core, 4 * 4.0 * 8 * 8 * 64);
}

// Six a parameter of every GEMM and token, plus 12 L a d s (PaLM, appendix B).
TEST(FlopsTest, SixTimesParametersAndAttention) {
  for (const char* name : {"llama-3-8b", "llama-2-70b", "tinyllama-1.1b"}) {
    const std::string path = std::string(TRIREME_SOURCE_DIR) + "/examples/models/" + name;
    const Config config = load_config(posix_env(), path).or_throw();
    std::int64_t in_gemms = 0;
    for (const Parameter& parameter : make_parameter_table(config).parameters) {
      if (parameter.shape.size() == 2 && parameter.role != Role::kTokenEmbedding) in_gemms += parameter.elements();
    }
    const double tokens = 8.0 * 4096;
    const double attention = 12.0 * static_cast<double>(config.layers * config.query_width()) * 4096 * tokens;
    const double expected = 6.0 * static_cast<double>(in_gemms) * tokens + attention;
    EXPECT_NEAR(model_flops(config, 8, 4096).count / expected, 1.0, 1e-14) << name;
  }
}

}  // namespace
}  // namespace trireme::model
