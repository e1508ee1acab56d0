#include "telemetry/timeline.h"

#include <gtest/gtest.h>

#include "base/check.h"

namespace trireme::telemetry {
namespace {

TEST(Timeline, GivesBackWhatWasAdded) {
  Timeline timeline(4);
  EXPECT_FALSE(timeline.on());
  timeline.switch_to(true);
  EXPECT_TRUE(timeline.on());
  const Timeline::Word forward = timeline.word("forward");
  EXPECT_EQ(timeline.word("forward"), forward);
  EXPECT_NE(timeline.word("data"), forward);
  EXPECT_EQ(timeline.word(""), 0);
  timeline.set_place({.step = 3, .unit = 5, .micro_batch = 1, .chunk = 0});
  timeline.add({.name = forward, .place = timeline.place(), .begin = {1.0}, .end = {1.5}});
  timeline.add({.name = timeline.word("all-reduce"),
                .track = timeline.word("data"),
                .detail = timeline.word("detail"),
                .category = SpanCategory::kCommunication,
                .bytes = 12,
                .begin = {1.25},
                .end = {2.0}});
  const std::vector<Span> spans = timeline.spans();
  ASSERT_EQ(spans.size(), 2U);
  EXPECT_EQ(spans[0], (Span{.name = "forward", .begin = {1.0}, .end = {1.5}, .place = {3, 5, 1, 0}}));
  EXPECT_EQ(spans[1], (Span{.name = "all-reduce",
                            .category = SpanCategory::kCommunication,
                            .begin = {1.25},
                            .end = {2.0},
                            .track = "data",
                            .bytes = 12,
                            .detail = "detail"}));
  EXPECT_EQ(timeline.dropped(), 0);
}

TEST(Timeline, KeepsTheBeginningAndCountsWhatItDrops) {
  Timeline timeline(3);
  const std::int64_t capacity = timeline.capacity();
  for (int i = 0; i < capacity + 5; ++i) timeline.add({.begin = {double(i)}, .end = {double(i)}});
  EXPECT_EQ(timeline.capacity(), capacity);
  EXPECT_EQ(timeline.dropped(), 5);
  EXPECT_EQ(timeline.spans().size(), static_cast<std::size_t>(capacity));
  EXPECT_EQ(timeline.spans().front().begin.count, 0);
  timeline.release();
  EXPECT_TRUE(timeline.spans().empty());
  timeline.add({});
  EXPECT_EQ(timeline.dropped(), 6);
}

TEST(Timeline, NeedsRoom) { EXPECT_THROW(Timeline(0), InternalError); }

}  // namespace
}  // namespace trireme::telemetry
