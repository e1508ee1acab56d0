#include "engine/parallel/instruction_tracer.h"

#include <gtest/gtest.h>

#include "model/test_configs.h"

namespace trireme::parallel {
namespace {

TEST(InstructionTracer, AnInstructionIsASpanAndThePlaceOfWhatItCalls) {
  telemetry::Timeline timeline(8);
  const model::Config config = model::small_llama();
  InstructionTracer tracer(timeline, config);
  EXPECT_FALSE(tracer.on());
  timeline.switch_to(true);
  timeline.set_place({.step = 7});
  tracer.run({.op = plan::Op::kBackwardInput, .micro_batch = 3, .chunk = 1, .unit = 1}, [&] {
    EXPECT_EQ(timeline.place(), (telemetry::SpanPlace{7, 1, 3, 1}));
  });
  tracer.run({.op = plan::Op::kGradientNorm}, [] {});
  EXPECT_EQ(timeline.place(), (telemetry::SpanPlace{.step = 7}));
  const std::vector<telemetry::Span> spans = timeline.spans();
  ASSERT_EQ(spans.size(), 2U);
  EXPECT_EQ(spans[0].name, "backward input");
  EXPECT_EQ(spans[0].detail, "decoder");
  EXPECT_EQ(spans[0].track, "");
  EXPECT_EQ(spans[0].place, (telemetry::SpanPlace{7, 1, 3, 1}));
  EXPECT_LE(spans[0].begin, spans[0].end);
  EXPECT_LE(spans[0].end, spans[1].begin);
  EXPECT_EQ(spans[1].name, "gradient norm");
  EXPECT_EQ(spans[1].detail, "");
}

TEST(InstructionTracer, OnlyWhatMovesDataIsCommunication) {
  using telemetry::SpanCategory;
  EXPECT_EQ(category_of(plan::Op::kForward), SpanCategory::kCompute);
  EXPECT_EQ(category_of(plan::Op::kUpdate), SpanCategory::kCompute);
  EXPECT_EQ(category_of(plan::Op::kReceiveGradient), SpanCategory::kCommunication);
  EXPECT_EQ(category_of(plan::Op::kReduce), SpanCategory::kCommunication);
}

}  // namespace
}  // namespace trireme::parallel
