#include "report/timeline.h"

#include <gtest/gtest.h>

namespace trireme::report {
namespace {

using telemetry::RankTimeline;
using telemetry::Span;
using telemetry::SpanCategory;
using telemetry::Trace;

Span span(std::string name, SpanCategory category, double begin, double end, int micro_batch, std::string track = "") {
  return {.name = std::move(name),
          .category = category,
          .begin = {begin},
          .end = {end},
          .track = std::move(track),
          .place = {.step = 2, .unit = 0, .micro_batch = micro_batch, .chunk = 0}};
}

// Two stages, one micro-batch: forward 1 s each, backward 2 s each.
Trace pipeline() {
  using enum SpanCategory;
  const RankTimeline first{
      .rank = 0,
      .spans = {span("step", kCompute, 0, 10, -1), span("forward", kCompute, 1, 2, 0),
                span("receive gradient", kCommunication, 2, 5, 0), span("wait: receive", kWaiting, 2, 5, 0),
                span("backward input", kCompute, 5, 6, 0), span("backward weight", kCompute, 6, 7, 0),
                span("update", kCompute, 7, 9, -1), span("receive", kCommunication, 2, 5, 0, "pipeline")}};
  const RankTimeline second{
      .rank = 1,
      .spans = {span("receive activation", kCommunication, 0.5, 2, 0), span("wait: receive", kWaiting, 0.5, 2, 0),
                span("forward", kCompute, 2, 3.5, 0), span("wait: all-reduce", kWaiting, 2.5, 3, 0),
                span("backward input", kCompute, 3.5, 4, 0), span("backward weight", kCompute, 4, 5, 0)}};
  return {.about = Json::object(), .ranks = {first, second}};
}

TEST(Timeline, TheBubbleIsWhatRanksDoNotCompute) {
  const Trace trace = pipeline();
  EXPECT_EQ(steps_of(trace), std::vector<std::int32_t>{2});
  EXPECT_DOUBLE_EQ(range_of(trace, 2).begin.count, 0);
  EXPECT_DOUBLE_EQ(range_of(trace, 2).end.count, 10);
  // From 1 s to 7 s on two ranks; busy 3 s, and 3 s less half a second of waiting within the forward.
  const Bubble bubble = bubble_of(trace, 2).value();
  EXPECT_DOUBLE_EQ(bubble.available.count, 12);
  EXPECT_DOUBLE_EQ(bubble.busy.count, 3 + 2.5);
  EXPECT_DOUBLE_EQ(bubble.fraction(), 1 - 5.5 / 12);
  EXPECT_DOUBLE_EQ(bubble_of(trace)->fraction(), bubble.fraction());
}

TEST(Timeline, StepsWithoutWorkHaveNoBubble) {
  EXPECT_FALSE(bubble_of(pipeline(), 3));
  EXPECT_FALSE(bubble_of(Trace{}));
  EXPECT_EQ(range_of(Trace{}, 1).length(), 0);
  Trace forwards = pipeline();
  for (RankTimeline& rank : forwards.ranks) {
    std::erase_if(rank.spans, [](const Span& s) { return s.name.starts_with("backward"); });
  }
  EXPECT_FALSE(bubble_of(forwards));
}

TEST(Timeline, SpansAreOfOneKindOfWork) {
  using enum SpanCategory;
  EXPECT_EQ(work_of(span("forward", kCompute, 0, 1, 0)), Work::kForward);
  EXPECT_EQ(work_of(span("recompute", kCompute, 0, 1, 0)), Work::kRecompute);
  EXPECT_EQ(work_of(span("update", kCompute, 0, 1, 0)), Work::kUpdate);
  EXPECT_EQ(work_of(span("wait: send", kWaiting, 0, 1, 0)), Work::kWaiting);
  EXPECT_EQ(work_of(span("reduce", kCommunication, 0, 1, 0)), Work::kCommunication);
  EXPECT_EQ(work_of(span("allocate", kCompute, 0, 1, 0)), std::nullopt);
}

}  // namespace
}  // namespace trireme::report
