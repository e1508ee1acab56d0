#include "telemetry/flight_recorder.h"

#include <atomic>
#include <thread>

#include <gtest/gtest.h>

namespace trireme::telemetry {
namespace {

TEST(FlightRecorder, KeepsTheLastOperationsOldestFirst) {
  FlightRecorder recorder(3);
  EXPECT_TRUE(recorder.records().empty());
  const int data = recorder.add_group("data", {0, 1});
  const int tensor = recorder.add_group("tensor", {1, 3});
  std::vector<FlightRecorder::Handle> handles;
  for (int i = 0; i < 5; ++i) {
    handles.push_back(recorder.begin(i % 2 == 0 ? data : tensor, "barrier", {i}, {1.0 * i}));
  }
  recorder.end(handles[0], {9});  // gone
  recorder.end(handles[3], {3.5});
  const std::vector<OperationRecord> records = recorder.records();
  ASSERT_EQ(records.size(), 3U);
  EXPECT_EQ(records[0].axis, "data");
  EXPECT_EQ(records[0].sequence, 2);
  EXPECT_EQ(records[0].bytes.count, 2);
  EXPECT_EQ(records[0].posted.count, 2.0);
  EXPECT_FALSE(records[0].completed);
  EXPECT_EQ(records[1].axis, "tensor");
  EXPECT_EQ(records[1].ranks, (std::vector<int>{1, 3}));
  EXPECT_EQ(records[1].sequence, 2);
  EXPECT_EQ(records[1].completed.value_or(Seconds{}).count, 3.5);
  EXPECT_EQ(records[2].sequence, 3);
}

TEST(FlightRecorder, GroupsOfTheSameNameAreToldApart) {
  FlightRecorder recorder(4);
  recorder.add_group("tensor", {0, 1});
  recorder.add_group("tensor", {0, 2});
  const int again = recorder.add_group("tensor", {0, 1});
  recorder.begin(again, "barrier", {}, {});
  EXPECT_EQ(recorder.records().at(0).instance, 1);
}

TEST(FlightRecorder, TextForPeople) {
  FlightRecorder recorder(4);
  const int data = recorder.add_group("data", {0, 1});
  recorder.end(recorder.begin(data, "all-reduce (sum) of 500 F32", {2000}, {3.00025}), {3.00145});
  recorder.begin(recorder.add_group("data", {0, 1}), std::string(100, 'x'), {}, {4});
  EXPECT_EQ(recorder.text({6}),
            "#1 data [0, 1] all-reduce (sum) of 500 F32, 2,000 bytes: posted 3.000250 s, took 1.2 ms\n"
            "#1 data (1) [0, 1] " +
                std::string(FlightRecorder::kTextLimit, 'x') +
                ", 0 bytes: posted 4.000000 s, not complete after 2.00 s\n");
}

TEST(FlightRecorder, JsonForFiles) {
  FlightRecorder recorder(4);
  const int data = recorder.add_group("data", {0, 1});
  recorder.end(recorder.begin(data, "barrier", {8}, {3}), {3.5});
  recorder.begin(data, "send of 2 F32", {8}, {4});
  EXPECT_EQ(to_json(recorder.records()).dump(),
            R"([{"sequence":1,"axis":"data","ranks":[0,1],"instance":0,"operation":"barrier","bytes":8,)"
            R"("posted_s":3.0,"completed_s":3.5},)"
            R"({"sequence":2,"axis":"data","ranks":[0,1],"instance":0,"operation":"send of 2 F32","bytes":8,)"
            R"("posted_s":4.0,"completed_s":null}])");
}

TEST(FlightRecorder, MisuseIsRefused) {
  EXPECT_THROW(FlightRecorder(0), InternalError);
  FlightRecorder recorder(1);
  EXPECT_THROW(recorder.begin(0, "barrier", {}, {}), InternalError);
  EXPECT_THROW(recorder.end(0, {}), InternalError);
}

TEST(FlightRecorder, AnotherThreadReadsWhileTheOwnerWrites) {
  FlightRecorder recorder(8);
  const int data = recorder.add_group("data", {0, 1});
  std::atomic<bool> ended = false;
  std::thread reader([&] {
    while (!ended) {
      const auto records = recorder.records();
      for (std::size_t i = 1; i < records.size(); ++i) EXPECT_EQ(records[i].sequence, records[i - 1].sequence + 1);
    }
  });
  for (int i = 0; i < 2000; ++i) recorder.end(recorder.begin(data, "barrier", {}, {1.0 * i}), {1.0 * i});
  ended = true;
  reader.join();
}

}  // namespace
}  // namespace trireme::telemetry
