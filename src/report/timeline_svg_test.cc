#include "report/timeline_svg.h"

#include <gtest/gtest.h>

#include "base/check.h"

namespace trireme::report {
namespace {

using telemetry::Span;
using telemetry::SpanCategory;

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

Span span(std::string name, double begin, double end, int micro_batch, int unit, int chunk = 0) {
  return {.name = std::move(name),
          .begin = {begin},
          .end = {end},
          .place = {.step = 1, .unit = unit, .micro_batch = micro_batch, .chunk = chunk}};
}

TracePanel panel() {
  TracePanel made{.name = "a<b>.json", .trace = {}, .step = 1};
  made.trace.about =
      Json::object({{"schedule", "interleaved"}, {"interleave", 2}, {"pp", 2}, {"dp", 1}, {"micro_batches", 3}});
  std::vector<Span> spans{span("forward", 0.0, 0.1, 2, 0),           span("forward", 0.1, 0.2, 2, 1),  // one box
                          span("forward", 0.2, 0.3, 2, 2, 1),        span("backward input", 0.5, 0.6, 2, 1),
                          span("backward weight", 0.6, 0.7, 2, 1),   span("allocate", 0.7, 0.8, 2, 1),
                          span("backward input", 0.9, 0.90001, 1, 1)};  // too narrow
  spans.push_back({.name = "send",
                   .category = SpanCategory::kCommunication,
                   .begin = {0.2},
                   .end = {1.0},
                   .track = "pipeline",
                   .place = {.step = 1},
                   .bytes = 4096});
  spans.push_back(
      {.name = "wait: <x>", .category = SpanCategory::kWaiting, .begin = {0.3}, .end = {0.4}, .place = {.step = 1}});
  spans.push_back({.name = "forward", .begin = {5.0}, .end = {6.0}, .place = {.step = 2}});  // another step
  made.trace.ranks = {{.rank = 7, .name = "rank 7 (pp 1) \"h\"", .spans = spans}};
  return made;
}

TEST(TimelineSvg, DrawsABoxForWhatFollowsCloselyAndNumbersWhereThereIsRoom) {
  const std::string svg = timeline_svg(panel(), Seconds{1.0});
  EXPECT_EQ(count(svg, "class=\"f\""), 1U);
  EXPECT_EQ(count(svg, "forward, micro-batch 2, units 0 to 1: 200.000 ms"), 1U);
  EXPECT_EQ(count(svg, "class=\"f o\""), 1U);
  EXPECT_EQ(count(svg, "class=\"i\""), 1U);
  EXPECT_EQ(count(svg, "class=\"w\""), 1U);
  EXPECT_EQ(count(svg, "class=\"q\""), 1U);
  EXPECT_EQ(count(svg, "send over the pipeline axis, 4.10 KB: 800.000 ms"), 1U) << svg;
  EXPECT_EQ(count(svg, "class=\"m\""), 3U);  // both forwards, the backward
  EXPECT_EQ(count(svg, ">2</text>"), 3U);
  EXPECT_EQ(count(svg, "rank 7"), 2U);
  EXPECT_EQ(count(svg, "wait: &lt;x&gt;"), 1U);
  EXPECT_EQ(count(svg, "&quot;h&quot;"), 1U);
  // On a scale of 100 s the boxes have no room for a number.
  EXPECT_EQ(count(timeline_svg(panel(), Seconds{100.0}), "class=\"m\""), 0U);
  TracePanel none = panel();
  none.step = 9;
  EXPECT_THROW(timeline_svg(none, Seconds{1.0}), InternalError);
}

TEST(TimelineSvg, ThePageStandsAlone) {
  const std::vector<TracePanel> panels{panel(), panel()};
  const std::string page = timeline_page(panels);
  EXPECT_EQ(count(page, "<section>"), 2U);
  EXPECT_EQ(count(page, "http"), 0U);
  EXPECT_EQ(count(page, "<script"), 0U);
  EXPECT_EQ(count(page, "a<b>"), 0U);
  EXPECT_EQ(count(page, "interleaved x 2, pp 2, 3 micro-batches: measured bubble"), 2U);
  EXPECT_NE(page.find("prefers-color-scheme:dark"), std::string::npos);
  EXPECT_EQ(count(page, "every second chunk is fainter"), 1U);
  for (const char* word : {"forward</li>", "backward, input</li>", "backward, weight</li>", "waiting</li>"}) {
    EXPECT_EQ(count(page, word), 1U) << word;
  }
  EXPECT_EQ(count(page, "recompute</li>"), 0U);  // there is none
  EXPECT_NE(timeline_page({}).find("</html>"), std::string::npos);
}

TEST(TimelineSvg, TitlesSayWhatTheTraceSays) {
  TracePanel bare = panel();
  bare.trace.about = Json();
  EXPECT_EQ(panel_title(bare), "a<b>.json");
  bare.trace.about = Json::object({{"schedule", "1f1b"}, {"recompute", "full"}, {"interleave", 1}});
  EXPECT_EQ(panel_title(bare), "1f1b, recompute full");
}

}  // namespace
}  // namespace trireme::report
