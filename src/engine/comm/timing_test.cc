#include "engine/comm/timing.h"

#include <chrono>
#include <thread>

#include <gtest/gtest.h>

#include "engine/comm/faults.h"
#include "engine/comm/test_ranks.h"
#include "engine/comm/threads.h"

namespace trireme::comm {
namespace {

constexpr Clock::time_point at(int seconds) { return Clock::time_point(std::chrono::seconds(seconds)); }

void add(CommunicationTimes& times, int posted, int completed) {
  times.begin("data", at(posted));
  times.end("data", at(posted), at(completed));
}

TEST(CommunicationTimes, UnderWayIsTheUnion) {
  CommunicationTimes times;
  add(times, 10, 12);
  times.begin("data", at(20));
  times.begin("data", at(21));
  times.end("data", at(21), at(24));  // looked at first
  times.begin("data", at(28));
  times.end("data", at(28), at(29));  // behind a gap
  times.end("data", at(20), at(22));
  add(times, 29, 31);
  add(times, 40, 40);
  times.add_exposed("data", std::chrono::seconds(3));
  times.add_exposed("tensor", std::chrono::seconds(1));
  const auto taken = times.take();
  ASSERT_EQ(taken.size(), 2U);
  EXPECT_DOUBLE_EQ(taken.at("data").under_way.count, 2 + 4 + 3);
  EXPECT_DOUBLE_EQ(taken.at("data").exposed.count, 3);
  EXPECT_EQ(taken.at("data").operations, 6);
  EXPECT_DOUBLE_EQ(taken.at("tensor").under_way.count, 0);
  EXPECT_DOUBLE_EQ(taken.at("tensor").exposed.count, 1);
  EXPECT_DOUBLE_EQ(times.take().at("data").exposed.count, 0);
}

TEST(CommunicationTimes, WhatRunsCountsInTheNextStep) {
  CommunicationTimes times;
  times.begin("data", at(10));
  add(times, 11, 12);
  EXPECT_DOUBLE_EQ(times.take().at("data").under_way.count, 1);
  times.end("data", at(10), at(15));
  const AxisTimes next = times.take().at("data");
  EXPECT_DOUBLE_EQ(next.under_way.count, 5);
  EXPECT_EQ(next.operations, 1);
}

TEST(CommunicationTimes, FailedOperationsDoNotCountAndUnknownOnesAreRefused) {
  CommunicationTimes times;
  times.begin("data", at(10));
  times.forget("data", at(10));
  EXPECT_EQ(times.take().at("data").operations, 0);
  EXPECT_THROW(times.end("data", at(10), at(11)), InternalError);
}

TEST(CommunicationTimes, MemoryIsBounded) {
  CommunicationTimes times;
  times.begin("data", at(0));
  constexpr int kOperations = 2 * static_cast<int>(CommunicationTimes::kMaxIntervals);
  for (int i = 1; i <= kOperations; ++i) add(times, 10 * i, 10 * i + 1);
  times.end("data", at(0), at(1));
  // One second each, and the gaps of 9 s between those that were taken together: the first half, for each beyond.
  const double merged = 9.0 * (kOperations - CommunicationTimes::kMaxIntervals);
  EXPECT_NEAR(times.take().at("data").under_way.count, 1 + kOperations + merged, 10);
}

// Two ranks; each operation takes 20 ms on the link.
template <class Body>
std::map<std::string, AxisTimes> times_of(Body&& body) {
  ThreadWorld world(2, Seconds{20});
  CommunicationTimes times;
  const auto outcomes = run_ranks(2, [&](int rank) {
    CommunicationTimes of_the_other;
    auto faulty = make_faulty_communicator(world.make_communicator(everybody(2), rank),
                                           std::make_shared<FaultState>(FaultPlan{.link = {.latency = {0.02}}}));
    const auto c = make_timing_communicator(std::move(faulty), rank == 0 ? times : of_the_other);
    body(*c);
  });
  for (const RankOutcome& outcome : outcomes) EXPECT_FALSE(outcome.failed) << outcome.message;
  return times.take();
}

TEST(TimingCommunicator, WaitedForAtOnceAllIsExposed) {
  const AxisTimes times = times_of([](Communicator& c) {
                            std::vector<float> values(10);
                            for (int i = 0; i < 3; ++i) c.all_gather({}, bytes_of(values), 10, DType::kF32)->wait();
                            c.barrier();
                          }).at("data");
  EXPECT_EQ(times.operations, 4);
  EXPECT_GE(times.under_way.count, 4 * 0.02);
  // But for what the thread takes from the call to the wait for it.
  EXPECT_NEAR(times.exposed.count, times.under_way.count, 0.3 * times.under_way.count);
}

TEST(TimingCommunicator, WhatIsWaitedForLaterIsHidden) {
  const AxisTimes times = times_of([](Communicator& c) {
                            std::vector<float> first(10), second(10);
                            c.barrier();
                            const auto a = c.all_gather({}, bytes_of(first), 10, DType::kF32);
                            const auto b = c.all_gather({}, bytes_of(second), 10, DType::kF32);
                            for (int layer = 0; layer < 20; ++layer) {
                              std::this_thread::sleep_for(std::chrono::milliseconds(10));
                              c.progress();
                            }
                            while (!a->done()) c.progress();
                            b->wait();
                          }).at("data");
  EXPECT_EQ(times.operations, 3);
  EXPECT_GE(times.under_way.count, 2 * 0.02);
  EXPECT_LT(times.under_way.count, 0.2);  // not until this rank looked
  EXPECT_GE(times.exposed.count, 0.02);   // the barrier
  EXPECT_LT(times.exposed.count, times.under_way.count);
}

TEST(TimingCommunicator, ATimelineSeesWhatIsUnderWayAndWhatTheRankWaitsFor) {
  ThreadWorld world(2, Seconds{20});
  run_ranks(2, [&](int rank) {
    CommunicationTimes times;
    telemetry::Timeline timeline(64);
    const auto c = make_timing_communicator(world.make_communicator(everybody(2), rank), times, &timeline);
    std::vector<float> values(10);
    c->all_reduce({}, bytes_of(values), 10, DType::kF32, Reduction::kSum)->wait();
    EXPECT_TRUE(timeline.spans().empty());  // it is off
    timeline.switch_to(true);
    timeline.set_place({.step = 4, .unit = 2, .micro_batch = 1, .chunk = 0});
    const auto request = c->all_gather({}, bytes_of(values), 10, DType::kF32);
    timeline.set_place({.step = 4, .unit = 3});  // where it is waited for does not count
    request->wait();
    c->barrier();
    const std::vector<telemetry::Span> spans = timeline.spans();
    ASSERT_EQ(spans.size(), 5U);
    const char* const names[] = {"wait: all-gather", "all-gather", "wait: all-gather", "barrier", "wait: barrier"};
    for (std::size_t i = 0; i < spans.size(); ++i) {
      const bool waits = i % 2 == 0;
      EXPECT_EQ(spans[i].name, names[i]);
      EXPECT_EQ(spans[i].category, waits ? telemetry::SpanCategory::kWaiting : telemetry::SpanCategory::kCommunication);
      EXPECT_EQ(spans[i].track, waits ? "" : "data");
      EXPECT_EQ(spans[i].detail, waits ? "data" : "");
      EXPECT_EQ(spans[i].bytes, i < 3 ? 40 : -1);
      EXPECT_EQ(spans[i].place.unit, i < 3 ? 2 : 3);
      EXPECT_LE(spans[i].begin, spans[i].end);
    }
    EXPECT_EQ(spans[0].begin, spans[1].begin);
    EXPECT_LE(spans[1].end, spans[2].end);
  });
}

TEST(TimingCommunicator, FailedCallsExposeTimeAndNothingElse) {
  ThreadWorld world(2, Seconds{0.1});
  CommunicationTimes times;
  run_ranks(2, [&](int rank) {
    const auto plain = world.make_communicator(everybody(2), rank);
    if (rank == 1) return;
    const auto c = make_timing_communicator(world.make_communicator(everybody(2), rank), times);
    float value = 0;
    auto* data = reinterpret_cast<std::byte*>(&value);
    const auto request = c->receive({}, data, 1, DType::kF32, 1);
    EXPECT_THROW(request->wait(), Error);
    EXPECT_THROW(c->barrier(), Error);
    EXPECT_THROW(c->send({}, data, 1, DType::kF32, 1), Error);
  });
  const AxisTimes taken = times.take().at("data");
  EXPECT_EQ(taken.operations, 0);
  EXPECT_EQ(taken.under_way.count, 0);
  EXPECT_GE(taken.exposed.count, 0.1);
}

}  // namespace
}  // namespace trireme::comm
