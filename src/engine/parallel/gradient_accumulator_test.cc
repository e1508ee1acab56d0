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
    GradientAccumulator::UnitSink sink(gradients_, 1);
    EXPECT_FALSE(sink.open(model::Role::kUpWeight).accumulate);
    sink.close(model::Role::kUpWeight);
    EXPECT_TRUE(sink.open(model::Role::kUpWeight).accumulate);
    sink.close(model::Role::kUpWeight);
  }
}

TEST_F(GradientAccumulatorTest, ATiedHeadHasItsOwnAccumulator) {
  gradients_.begin_step();
  GradientAccumulator::UnitSink embedding(gradients_, 0), head(gradients_, 2);
  EXPECT_NE(embedding.open(model::Role::kTokenEmbedding).view.data, head.open(model::Role::kHeadWeight).view.data);
}

TEST_F(GradientAccumulatorTest, MisuseIsAnInternalError) {
  gradients_.begin_step();
  GradientAccumulator::UnitSink sink(gradients_, 1);
  EXPECT_THROW(sink.close(model::Role::kUpWeight), InternalError);
  sink.open(model::Role::kUpWeight);
  EXPECT_THROW(sink.open(model::Role::kUpWeight), InternalError);
  EXPECT_THROW(sink.open(model::Role::kTokenEmbedding), InternalError);  // not of this unit
}

TEST_F(GradientAccumulatorTest, AMissingGradientIsFoundBeforeItIsUsed) {
  gradients_.begin_step();
  EXPECT_THROW(gradients_.check_complete(), InternalError);
}

TEST_F(GradientAccumulatorTest, WhatTheExecutorCannotDoIsNotRunInSilence) {
  RunPlan plan = rank_.plan();
  plan.step.instructions = {{.op = plan::Op::kGather, .micro_batch = 0, .chunk = 0, .unit = 1}};
  kernels::Arena arena(rank_.device(), {});
  const auto self = comm::make_self_communicator("self", 0);
  nn::RankContext context{.env = env_,
                          .log = log_,
                          .device = rank_.device(),
                          .arena = arena,
                          .tensor = *self,
                          .pipeline = *self,
                          .data = *self,
                          .kv_replicas = *self};
  Executor executor(context, plan);
  EXPECT_THROW(executor.step({}), InternalError);
}

}  // namespace
}  // namespace trireme::parallel
