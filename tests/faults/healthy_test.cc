// Layouts that compute the same thing, in every precision: `verify` raises no alarm. The whole matrix is
// verify_matrix_test.cc.

#include <algorithm>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "faults/verify_matrix.h"

namespace trireme::testing {
namespace {

TEST(Healthy, ASampleOfTheMatrixRaisesNoAlarm) {
  const std::vector<HealthyCase> all = healthy_cases({1, 2, 3, 4, 5, 6, 7});
  std::vector<HealthyCase> sample;
  for (std::size_t i = 0; i < all.size(); i += 31) sample.push_back(all[i]);
  const HealthyCount count = count_alarms(sample);
  EXPECT_EQ(count.alarms, 0);
  EXPECT_LT(count.largest, 0.9);
}

class Odd : public ::testing::TestWithParam<std::string>, protected VerifyRun {
 protected:
  // No alarm, and nothing near its bound.
  void expect_healthy(const Settings& settings) {
    Settings all = settings;
    all.emplace_back("train.precision", GetParam());
    const train::VerifyReport made = report(all);
    std::string name;
    for (const auto& [key, value] : all) name += key + " " + value + "; ";
    EXPECT_NE(made.verdict, train::Verdict::kDifferent)
        << name << "step " << made.first->step << ", " << made.first->what << " of " << made.first->tensor << ": "
        << made.first->difference << " against " << made.first->bound;
    EXPECT_LT(largest_ratio(made), 0.9) << name;
    largest_ = std::max(largest_, largest_ratio(made));
  }
  static void TearDownTestSuite() { fmt::print("largest difference at {:.3f} of its bound\n", largest_); }

 private:
  static inline double largest_ = 0;
};

INSTANTIATE_TEST_SUITE_P(In, Odd, ::testing::Values("fp32", "bf16", "fp16"),
                         [](const auto& precision) { return precision.param; });

TEST_P(Odd, OneLayerAndASequenceOfOne) {
  for (const char* family : {"gpt2", "llama", "relu"}) {
    model::Config config = narrow_config(family);
    config.layers = 1;
    use_config(config);
    expect_healthy({{"layout.tp", "3"}, {"train.sequence", "1"}});
    expect_healthy({{"layout.dp", "2"}, {"layout.tp", "2"}, {"train.sequence", "1"}});
  }
}

TEST_P(Odd, FewerKeyHeadsThanTensorRanks) {
  model::Config config = narrow_config("llama");
  for (const int heads : {1, 2}) {
    config.kv_heads = heads;
    use_config(config);
    expect_healthy({{"layout.tp", heads == 1 ? "3" : "6"}});
    expect_healthy({{"layout.tp", "2"}, {"layout.dp", "2"}, {"layout.sequence_parallel", "true"}});
  }
}

TEST_P(Odd, KeyBiasesHaveNoGradientButRounding) {
  model::Config config = narrow_config("llama");
  config.attention_input_bias = config.attention_output_bias = true;
  use_config(config);
  expect_healthy({{"layout.tp", "3"}});
  expect_healthy({{"layout.dp", "2"}, {"layout.pp", "2"}});
}

TEST_P(Odd, DropoutAndTiedEmbeddings) {
  for (const char* family : {"gpt2", "llama"}) {
    model::Config config = narrow_config(family);
    config.tied_embeddings = true;
    if (config.family == model::Family::kGpt2) config.embedding_dropout = config.residual_dropout = 0.2;
    config.attention_dropout = 0.2;
    use_config(config);
    expect_healthy({{"layout.tp", "3"}, {"layout.pp", "2"}});
    expect_healthy({{"layout.dp", "2"}, {"layout.tp", "2"}, {"layout.recompute", "full"}});
  }
}

TEST_P(Odd, ZeroStagesSequenceParallelismAndRecompute) {
  use_config(narrow_config("llama"));
  for (const char* zero : {"1", "2", "3"}) {
    expect_healthy({{"layout.dp", "2"}, {"layout.tp", "3"}, {"layout.zero", zero}, {"layout.recompute", "selective"}});
    expect_healthy(
        {{"layout.dp", "4"}, {"layout.zero", zero}, {"train.fp32_gradients", GetParam() == "fp32" ? "false" : "true"}});
  }
  expect_healthy({{"layout.tp", "2"}, {"layout.sequence_parallel", "true"}, {"layout.recompute", "full"}});
}

// A token that most of the text consists of: some micro-batches have few targets that bear a loss.
TEST_P(Odd, FewTargets) {
  std::string text;
  for (int i = 0; i < 2000; ++i) text += std::string(static_cast<std::size_t>(i % 37), ' ') + std::to_string(i);
  use_text(text);
  for (const char* family : {"gpt2", "relu"}) {
    use_config(narrow_config(family));
    expect_healthy({{"layout.dp", "4"}, {"data.ignore", "32"}});
    expect_healthy({{"layout.tp", "3"}, {"data.ignore", "32"}});
  }
}

// Gradients that overflow at the loss scale of the run.
TEST_P(Odd, ALossScaleThatIsTooLarge) {
  if (GetParam() != "fp16") GTEST_SKIP() << "it has none";
  use_config(narrow_config("llama"));
  expect_healthy({{"layout.tp", "3"}, {"optimizer.loss_scale", "16777216"}});
}

TEST_P(Odd, OptimizersThatAreUnusual) {
  use_config(narrow_config("gpt2"));
  expect_healthy({{"layout.tp", "3"}, {"optimizer.clip_norm", "0"}, {"optimizer.weight_decay", "0"}});
  expect_healthy({{"layout.dp", "2"}, {"optimizer.clip_norm", "1e-3"}, {"optimizer.beta1", "0"}});
  expect_healthy({{"layout.dp", "2"}, {"optimizer.learning_rate", "0.1"}, {"optimizer.epsilon", "1e-3"}});
}

TEST_P(Odd, TheFirstLayersOfStoredWeights) {
  model::Config config = narrow_config("gpt2");
  config.layers = 4;
  use_config(config);
  put_weights("weights", "1");
  Settings settings{{"layout.tp", "3"}, {"model.weights", "weights"}, {"train.precision", GetParam()}};
  const train::VerifyReport two = train::verify(env(), log(), resolved(settings, 2), {.reference = {}, .steps = 1});
  EXPECT_NE(two.verdict, train::Verdict::kDifferent);
  EXPECT_TRUE(two.target[0].tensors.contains("transformer.h.1.ln_1.weight"));
  EXPECT_FALSE(two.target[0].tensors.contains("transformer.h.2.ln_1.weight"));
  try {
    resolved(settings, 5);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    EXPECT_NE(std::string(error.what()).find("--layers"), std::string::npos) << error.what();
  }
  // What no layer of the stored model has is refused still.
  use_config(narrow_config("llama"));
  EXPECT_THROW(train::verify(env(), log(), resolved(settings, 1), {.reference = {}, .steps = 1}), Error);
}

}  // namespace
}  // namespace trireme::testing
