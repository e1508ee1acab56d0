// Golden values: transformers 5.24 (modeling_rope_utils) in float32.

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "model/config.h"

namespace trireme::model {
namespace {

using Golden = std::vector<std::pair<std::size_t, double>>;

void expect_frequencies(const Config& config, std::size_t count, const Golden& golden) {
  const std::vector<double> frequencies = rotary_inverse_frequencies(config);
  ASSERT_EQ(frequencies.size(), count);
  for (const auto& [index, value] : golden) {
    // They round after every operation, we once.
    EXPECT_NEAR(frequencies[index] / value, 1.0, 5e-7) << index;
  }
  for (double frequency : frequencies) EXPECT_EQ(frequency, static_cast<double>(static_cast<float>(frequency)));
}

Config shipped(const std::string& name) {
  const std::string path = std::string(TRIREME_SOURCE_DIR) + "/examples/models/" + name;
  return load_config(posix_env(), path).or_throw();
}

TEST(RotaryTest, Plain) {
  expect_frequencies(shipped("llama-2-7b"), 64,
                     {{0, 1.0}, {1, 0.865964353}, {32, 0.00999999978}, {63, 0.000115478193}});
}

TEST(RotaryTest, Linear) {
  Config config = shipped("llama-2-7b");
  config.rope_scaling = {.kind = RopeScalingKind::kLinear, .factor = 4.0};
  expect_frequencies(config, 64, {{0, 0.25}, {1, 0.216491088}, {32, 0.00249999994}, {63, 2.88695483e-05}});
}

TEST(RotaryTest, Llama3KeepsShortBlendsMiddleAndStretchesLongWavelengths) {
  expect_frequencies(shipped("llama-3.2-1b"), 32,
                     {{0, 1.0},
                      {1, 0.663601279},
                      {8, 0.0376060307},
                      {13, 0.00483942125},
                      {14, 0.00321144611},
                      {15, 0.00129054801},
                      {16, 0.000429556705},
                      {17, 9.70828623e-05},
                      {18, 1.94616387e-05},
                      {31, 9.41830649e-08}});
  expect_frequencies(shipped("llama-3.1-405b"), 64,
                     {{0, 1.0},
                      {1, 0.814617217},
                      {27, 0.00394227589},
                      {28, 0.00321144611},
                      {29, 0.00216657063},
                      {30, 0.00137189368},
                      {31, 0.00085675146},
                      {32, 0.000524846022},
                      {33, 0.00031269365},
                      {34, 0.000178507791},
                      {35, 9.55621217e-05},
                      {36, 7.78465546e-05},
                      {63, 3.06892588e-07}});
}

TEST(RotaryTest, LearnedPositionsHaveNone) { EXPECT_THROW(rotary_inverse_frequencies(shipped("gpt2")), InternalError); }

}  // namespace
}  // namespace trireme::model
