#include "engine/parallel/gradient_accumulator.h"

#include <gtest/gtest.h>

#include "base/fake_env.h"
#include "engine/parallel/rank.h"
#include "model/test_configs.h"

namespace trireme::parallel {
namespace {

model::Config small() {
  model::Config c = model::small_llama();
  c.layers = 1;
  c.tied_embeddings = true;
  return c;
}

class GradientAccumulatorTest : public ::testing::Test {
 protected:
  FakeEnv env_;
  MemoryLog log_;
  Rank rank_{env_, log_, kernels::make_reference_device(),
             make_run_plan(small(), {}, {.global_batch = 1, .micro_batch = 1, .sequence = 4}, {.threads = 1}, 0),
             RankOptions{}};
  GradientAccumulator gradients_{rank_.executor().state()};
};

TEST_F(GradientAccumulatorTest, TheFirstContributionOfAStepOverwrites) {
  for (int step = 0; step < 2; ++step) {
    gradients_.begin_step();
    GradientAccumulator::UnitSink sink(gradients_, 1, 0);
    EXPECT_FALSE(sink.open(model::Role::kUpWeight).accumulate);
    sink.close(model::Role::kUpWeight);
    EXPECT_TRUE(sink.open(model::Role::kUpWeight).accumulate);
    sink.close(model::Role::kUpWeight);
  }
}

TEST_F(GradientAccumulatorTest, ATiedHeadHasItsOwnAccumulator) {
  gradients_.begin_step();
  GradientAccumulator::UnitSink embedding(gradients_, 0, 0), head(gradients_, 2, 0);
  EXPECT_NE(embedding.open(model::Role::kTokenEmbedding).view.data, head.open(model::Role::kHeadWeight).view.data);
}

TEST_F(GradientAccumulatorTest, MisuseIsAnInternalError) {
  gradients_.begin_step();
  GradientAccumulator::UnitSink sink(gradients_, 1, 0);
  EXPECT_THROW(sink.close(model::Role::kUpWeight), InternalError);
  sink.open(model::Role::kUpWeight);
  EXPECT_THROW(sink.open(model::Role::kUpWeight), InternalError);
  EXPECT_THROW(sink.open(model::Role::kTokenEmbedding), InternalError);  // not of this unit
}

TEST_F(GradientAccumulatorTest, AMissingGradientIsFoundBeforeItIsUsed) {
  gradients_.begin_step();
  EXPECT_THROW(gradients_.check_complete(), InternalError);
}

}  // namespace
}  // namespace trireme::parallel
