#include "engine/comm/recording.h"

#include <array>
#include <chrono>

#include <gtest/gtest.h>

#include "engine/comm/test_ranks.h"
#include "engine/comm/threads.h"

namespace trireme::comm {
namespace {

using telemetry::FlightRecorder;
using telemetry::OperationRecord;

double now() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }

TEST(RecordingCommunicator, EveryOperationWithItsTimes) {
  ThreadWorld world(2, Seconds{20});
  std::array<FlightRecorder, 2> recorders{FlightRecorder(16), FlightRecorder(16)};
  const double begin = now();
  const auto outcomes = run_ranks(2, [&](int rank) {
    const auto c = make_recording_communicator(world.make_communicator(everybody(2), rank),
                                               recorders[static_cast<std::size_t>(rank)]);
    std::vector<float> values(6);
    std::byte* const data = bytes_of(values);
    c->all_reduce({}, data, 6, DType::kF32, Reduction::kMax)->wait();
    c->reduce_scatter({}, data, 6, DType::kF32)->wait();
    c->all_gather({}, data, 6, DType::kF32)->wait();
    c->broadcast({}, data, 6, DType::kF32, 1)->wait();
    const auto message = rank == 0 ? c->send({}, data, 3, DType::kF64, 1) : c->receive({}, data, 3, DType::kF64, 0);
    while (!message->done()) c->progress();
    EXPECT_TRUE(message->done());
    message->wait();
    c->barrier();
  });
  for (const RankOutcome& outcome : outcomes) EXPECT_FALSE(outcome.failed) << outcome.message;
  for (const int rank : {0, 1}) {
    const std::vector<OperationRecord> records = recorders[static_cast<std::size_t>(rank)].records();
    std::vector<std::string> operations;
    for (const OperationRecord& record : records) {
      operations.push_back(record.operation);
      EXPECT_EQ(record.sequence, std::ssize(operations));
      EXPECT_EQ(record.ranks, (std::vector<int>{0, 1}));
      EXPECT_EQ(record.axis, "data");
      EXPECT_EQ(record.bytes.count, record.operation == "barrier" ? 0 : 24);
      EXPECT_GE(record.posted.count, begin);
      EXPECT_GE(record.completed.value_or(Seconds{}).count, record.posted.count);
      EXPECT_LE(record.completed.value_or(Seconds{}).count, now());
    }
    EXPECT_EQ(operations, (std::vector<std::string>{"all-reduce (maximum) of 6 F32", "reduce-scatter of 6 F32",
                                                    "all-gather of 6 F32", "broadcast from index 1 of 6 F32",
                                                    rank == 0 ? "send of 3 F64" : "receive of 3 F64", "barrier"}));
  }
}

TEST(RecordingCommunicator, WhatFailsStaysUnfinished) {
  ThreadWorld world(2, Seconds{0.2});
  FlightRecorder recorder(16);
  const auto outcomes = run_ranks(2, [&](int rank) {
    const auto c = world.make_communicator(everybody(2), rank);
    if (rank == 1) return;
    const auto recorded = make_recording_communicator(world.make_communicator(everybody(2), 0), recorder);
    float value = 0;
    const auto request = recorded->receive({}, reinterpret_cast<std::byte*>(&value), 1, DType::kF32, 1);
    EXPECT_FALSE(request->done());
    EXPECT_FALSE(recorder.records().at(0).completed);
    EXPECT_THROW(request->wait(), Error);
    recorded->barrier();
  });
  EXPECT_EQ(outcomes[0].code, ExitCode::kHang);
  const std::vector<OperationRecord> records = recorder.records();
  ASSERT_EQ(records.size(), 2U);
  EXPECT_EQ(records[0].operation, "receive of 1 F32");
  EXPECT_FALSE(records[0].completed);
  EXPECT_EQ(records[1].operation, "barrier");
  EXPECT_FALSE(records[1].completed);
}

TEST(RecordingCommunicator, ADestroyedRequestHasEnded) {
  FlightRecorder recorder(4);
  const auto c = make_recording_communicator(make_self_communicator("data", 3), recorder);
  float value = 0;
  c->all_reduce({}, reinterpret_cast<std::byte*>(&value), 1, DType::kF32, Reduction::kSum);
  EXPECT_EQ(c->index(), 0);
  EXPECT_EQ(c->size(), 1);
  EXPECT_EQ(recorder.records().at(0).ranks, std::vector<int>{3});
  EXPECT_TRUE(recorder.records().at(0).completed);
}

}  // namespace
}  // namespace trireme::comm
