#include "telemetry/trace.h"

#include <gtest/gtest.h>

#include "base/fake_env.h"

namespace trireme::telemetry {
namespace {

RankTimeline example(int rank, double zero) {
  const auto span = [&](std::string name, SpanCategory category, double begin, double end, std::string track = "") {
    return Span{.name = std::move(name),
                .category = category,
                .begin = {zero + begin},
                .end = {zero + end},
                .track = std::move(track),
                .place = {.step = 3, .unit = 1, .micro_batch = 0, .chunk = 0},
                .bytes = -1,
                .detail = ""};
  };
  using enum SpanCategory;
  RankTimeline made{.rank = rank, .name = "rank \"" + std::to_string(rank) + "\"", .host = "h", .dropped = 2};
  made.spans = {span("wait: receive", kWaiting, 0.25, 0.5),
                span("receive activation", kCommunication, 0.25, 0.5),  // the same times: the later added is the outer
                span("forward", kCompute, 0.5, 1.0),
                span("step", kCompute, 0.0, 2.0),
                span("all-reduce", kCommunication, 0.5, 1.25, "data"),
                span("all-reduce", kCommunication, 1.0, 1.5, "data"),  // beside the first
                span("all-reduce", kCommunication, 1.25, 1.75, "data"),
                span("receive", kCommunication, 0.1, 0.5, "pipeline")};
  made.spans[4].bytes = 4096;
  made.spans[4].detail = "a \\ detail";
  return made;
}

TEST(Trace, ATimelineBeginsWithItsFirstSpan) {
  EXPECT_EQ(example(3, 100.0).begin().count, 100.0);
  EXPECT_EQ(RankTimeline{}.begin().count, 0.0);
}

std::string written(const std::vector<std::pair<RankTimeline, ClockOffset>>& ranks, Seconds origin) {
  FakeEnv env;
  TraceWriter writer(env, "trace.json");
  for (const auto& [timeline, clock] : ranks) writer.add(trace_part(timeline, clock, origin));
  EXPECT_FALSE(env.exists("trace.json"));
  writer.close(Json::object({{"schedule", "1f1b"}}));
  return env.read_file("trace.json");
}

TEST(Trace, IsReadAsItWasWritten) {
  // The second rank's clock is 50 s behind the leader's.
  const std::string text = written(
      {{example(0, 100.0), {}}, {example(1, 50.0), {.offset = {50.0}, .round_trip = {1e-4}, .estimated = true}}},
      Seconds{100.0});
  const Trace trace = parse_trace(text, "trace.json").or_throw();
  EXPECT_EQ(trace.about.find("schedule")->as_string(), "1f1b");
  const Json& clocks = *trace.about.find("ranks");
  EXPECT_EQ(clocks.as_array()[0].find("clock")->as_string(), "shared");
  EXPECT_EQ(clocks.as_array()[1].find("clock")->as_string(), "estimated");
  EXPECT_EQ(clocks.as_array()[1].find("clock_offset_s")->as_number(), 50.0);
  ASSERT_EQ(trace.ranks.size(), 2U);
  for (const RankTimeline& rank : trace.ranks) {
    RankTimeline expected = example(rank.rank, 0.0);
    // By track, then begin, the outer first; the second lane of an axis behind its first.
    const std::vector<std::size_t> order{3, 1, 0, 2, 4, 6, 5, 7};
    ASSERT_EQ(rank.spans.size(), order.size());
    for (std::size_t i = 0; i < order.size(); ++i) {
      const Span &span = rank.spans[i], &like = expected.spans[order[i]];
      EXPECT_EQ(span.name, like.name) << i;
      EXPECT_NEAR(span.begin.count, like.begin.count, 1e-8) << i;
      EXPECT_NEAR(span.end.count, like.end.count, 1e-8) << i;
      EXPECT_EQ(span.track, like.track) << i;
      EXPECT_EQ(span.category, like.category) << i;
      EXPECT_EQ(span.place, like.place) << i;
      EXPECT_EQ(span.bytes, like.bytes) << i;
      EXPECT_EQ(span.detail, like.detail) << i;
    }
    EXPECT_EQ(rank.name, expected.name);
    EXPECT_EQ(rank.host, "h");
    EXPECT_EQ(rank.dropped, 2);
  }
}

TEST(Trace, OfNothingIsAFileToo) {
  EXPECT_TRUE(parse_trace(written({}, {}), "t").or_throw().ranks.empty());
  const RankTimeline idle{.rank = 4, .name = "rank 4", .host = "", .dropped = 0, .spans = {}};
  EXPECT_EQ(parse_trace(written({{idle, {}}}, {}), "t").or_throw().ranks, std::vector{idle});
}

std::string refusal(const std::string& events) {
  const std::string names =
      R"({"name":"process_name","ph":"M","ts":0,"pid":0,"tid":0,"args":{"name":"rank 0"}},
         {"name":"thread_name","ph":"M","ts":0,"pid":0,"tid":0,"args":{"name":"compute"}},)";
  const Result<Trace> trace = parse_trace("{\"traceEvents\":[" + names + events + "]}", "t.json");
  return trace.ok() ? "" : trace.failure().sentence();
}

TEST(Trace, BrokenFilesAreRefusedByEventAndRule) {
  const std::string good = R"({"name":"a","ph":"X","ts":1,"dur":2,"pid":0,"tid":0})";
  EXPECT_EQ(refusal(good), "");
  const std::pair<std::string, std::string> cases[] = {
      {R"({"ph":"X","ts":1,"dur":2,"pid":0,"tid":0})", "event 2: needs a text name"},
      {R"({"name":"a","ts":1,"dur":2,"pid":0,"tid":0})", "event 2: needs a text ph"},
      {R"({"name":"a","ph":"X","dur":2,"pid":0,"tid":0})", "event 2: needs a number ts"},
      {R"({"name":"a","ph":"X","ts":1e300,"dur":2,"pid":0,"tid":0})", "event 2: needs a number ts"},
      {R"({"name":"a","ph":"X","ts":1,"dur":2,"tid":0})", "event 2: needs an integer pid"},
      {R"({"name":"a","ph":"X","ts":1,"dur":2,"pid":0})", "event 2: needs an integer tid"},
      {R"({"name":"a","ph":"X","ts":1,"pid":0,"tid":0})", "needs a number dur that is not negative"},
      {R"({"name":"a","ph":"X","ts":1,"dur":-2,"pid":0,"tid":0})", "needs a number dur that is not negative"},
      {R"({"name":"a","ph":"Q","ts":1,"pid":0,"tid":0})", "neither M nor X"},
      {R"({"name":"thread_name","ph":"M","ts":1,"pid":0,"tid":0})", "needs a text args.name"},
      {good + R"(,{"name":"b","ph":"X","ts":2,"dur":2,"pid":0,"tid":0})", "event 3: overlaps event 2 of its track"},
      {R"({"name":"a","ph":"X","ts":1,"dur":2,"pid":0,"tid":7})", "track 7 of process 0 has no thread_name"},
      {R"({"name":"thread_name","ph":"M","ts":0,"pid":1,"tid":0,"args":{"name":"x"}},
          {"name":"a","ph":"X","ts":1,"dur":2,"pid":1,"tid":0})",
       "process 1 has no process_name"},
      {"7", "needs a text name"},
  };
  for (const auto& [events, rule] : cases) EXPECT_NE(refusal(events).find(rule), std::string::npos) << refusal(events);
  EXPECT_NE(parse_trace("[]", "t.json").failure().sentence().find("traceEvents"), std::string::npos);
  EXPECT_NE(parse_trace("{\"traceEvents\":[", "t.json").failure().sentence().find("t.json"), std::string::npos);
}

}  // namespace
}  // namespace trireme::telemetry
