#include <atomic>
#include <vector>

#include <gtest/gtest.h>

#include "engine/comm/test_ranks.h"
#include "engine/comm/threads.h"

namespace trireme::comm {
namespace {

constexpr Seconds kShort{0.5};  // enough for two threads to start
constexpr Seconds kLong{60};

std::unique_ptr<Request> all_reduce(Communicator& communicator, std::vector<float>& values) {
  return communicator.all_reduce({}, reinterpret_cast<std::byte*>(values.data()),
                                 static_cast<std::int64_t>(values.size()), DType::kF32, Reduction::kSum);
}

TEST(ThreadDeadline, AMissingRankIsNamedByAllThatWait) {
  ThreadWorld world(3, kShort);
  const auto outcomes = run_ranks(3, [&](int rank) {
    const auto communicator = world.make_communicator(everybody(3), rank);
    std::vector<float> values(5);
    if (rank != 1) all_reduce(*communicator, values)->wait();
  });
  EXPECT_FALSE(outcomes[1].failed);
  for (const int rank : {0, 2}) {
    const RankOutcome& outcome = outcomes[static_cast<std::size_t>(rank)];
    EXPECT_EQ(outcome.code, ExitCode::kHang);
    EXPECT_EQ(outcome.message,
              "comm: all-reduce (sum) of 5 F32 over data: waited 500.0 ms; ranks arrived: 0, 2; missing: 1");
  }
}

TEST(ThreadDeadline, TheWorldIsDeadAfterwardsAndSaysWhy) {
  ThreadWorld world(3, kShort);
  const auto outcomes = run_ranks(3, [&](int rank) {
    const auto communicator = world.make_communicator(everybody(3), rank);
    const auto other = world.make_communicator({"tensor", {rank}}, rank);
    std::vector<float> values(5);
    if (rank == 0) {
      EXPECT_THROW(communicator->barrier(), Error);
    } else {
      while (true) {  // until rank 0 has given up
        other->barrier();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
    all_reduce(*communicator, values);
  });
  const std::string why =
      "the communicator is dead since barrier over data: waited 500.0 ms; ranks arrived: 0; missing: 1, 2";
  EXPECT_EQ(outcomes[0].message, "comm: all-reduce (sum) of 5 F32 over data: " + why);
  EXPECT_EQ(outcomes[1].message, "comm: barrier over tensor: " + why);
  EXPECT_EQ(outcomes[2].code, ExitCode::kHang);
}

TEST(ThreadDeadline, OfMessages) {
  for (const bool sends : {false, true}) {
    ThreadWorld world(2, kShort);
    const auto communicator = world.make_communicator(everybody(2, "pipeline"), 1);
    const auto message = [&](const auto& call) { return run_ranks(1, [&](int) { call(); })[0].message; };
    std::byte data[8]{};
    const std::string first = message([&] {
      sends ? communicator->send({}, data, 2, DType::kF32, 0)->wait()
            : communicator->receive({}, data, 2, DType::kF32, 0)->wait();
    });
    EXPECT_EQ(first, sends ? "comm: send of 2 F32 over pipeline: rank 1 waited 500.0 ms for the receive of rank 0"
                           : "comm: receive of 2 F32 over pipeline: rank 1 waited 500.0 ms for the send of rank 0");
    const std::string second = message([&] { communicator->send({}, data, 2, DType::kF32, 0); });
    EXPECT_NE(second.find("the communicator is dead since"), std::string::npos) << second;
  }
}

TEST(ThreadDeadline, ARequestOfADeadWorldSaysSo) {
  ThreadWorld world(2, kShort);
  const auto communicator = world.make_communicator(everybody(2), 0);
  std::byte data[4]{};
  const auto posted = communicator->receive({}, data, 1, DType::kF32, 1);
  const auto dropped = communicator->receive({}, data, 1, DType::kF32, 1);  // its end throws nothing
  EXPECT_FALSE(posted->done());
  EXPECT_THROW(communicator->barrier(), Error);
  EXPECT_THROW(posted->done(), Error);
  try {
    posted->wait();
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kHang);
    EXPECT_NE(std::string(error.what()).find("dead since barrier over data"), std::string::npos) << error.what();
    EXPECT_FALSE(error.hint().empty());
  }
}

TEST(ThreadDeadline, MayBeChanged) {
  ThreadWorld world(2, kLong);
  EXPECT_THROW(world.set_deadline(Seconds{0}), InternalError);
  const auto communicator = world.make_communicator(everybody(2), 0);
  const auto early = run_ranks(2, [&](int rank) {
    if (rank == 0) communicator->barrier();  // under the first deadline, and ends well
    if (rank == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      world.set_deadline(Seconds{0.01});
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      world.make_communicator(everybody(2), 1)->barrier();
    }
  });
  for (const RankOutcome& outcome : early) EXPECT_FALSE(outcome.failed) << outcome.message;
  const std::string late = run_ranks(1, [&](int) { communicator->barrier(); })[0].message;
  EXPECT_EQ(late, "comm: barrier over data: waited 10.0 ms; ranks arrived: 0; missing: 1");
}

// Runs two ranks whose calls do not agree; both must name both calls.
void expect_disagreement(const std::function<void(int, Communicator&)>& body, const std::string& call_0,
                         const std::string& call_1) {
  ThreadWorld world(2, kLong);
  const auto outcomes = run_ranks(2, [&](int rank) {
    const auto communicator = world.make_communicator(everybody(2), rank);
    body(rank, *communicator);
  });
  for (const RankOutcome& outcome : outcomes) {
    EXPECT_EQ(outcome.code, ExitCode::kInternal);
    EXPECT_NE(outcome.message.find("rank 0 calls " + call_0), std::string::npos) << outcome.message;
    EXPECT_NE(outcome.message.find("rank 1 calls " + call_1), std::string::npos) << outcome.message;
  }
}

TEST(ThreadDisagreement, NamesBothCalls) {
  std::vector<float> values(12);
  auto* data = reinterpret_cast<std::byte*>(values.data());
  const auto expect_refused = [&](const auto& call_0, const auto& call_1, const std::string& text_0,
                                  const std::string& text_1) {
    expect_disagreement([&](int rank, Communicator& c) { rank == 0 ? call_0(c)->wait() : call_1(c)->wait(); }, text_0,
                        text_1);
  };
  const auto sum = [&](std::int64_t count, DType dtype) {
    return [=](Communicator& c) { return c.all_reduce({}, data, count, dtype, Reduction::kSum); };
  };
  const auto gather = [&](Communicator& c) { return c.all_gather({}, data, 5, DType::kF32); };
  expect_refused(sum(5, DType::kF32), sum(6, DType::kF32), "all-reduce (sum) of 5 F32", "all-reduce (sum) of 6 F32");
  expect_refused(sum(5, DType::kF32), sum(5, DType::kF64), "all-reduce (sum) of 5 F32", "all-reduce (sum) of 5 F64");
  expect_refused(sum(5, DType::kF32), gather, "all-reduce (sum) of 5 F32", "all-gather of 5 F32");
  expect_refused(
      sum(5, DType::kF32), [&](Communicator& c) { return c.all_reduce({}, data, 5, DType::kF32, Reduction::kMax); },
      "all-reduce (sum) of 5 F32", "all-reduce (maximum) of 5 F32");
  const auto broadcast = [&](int root) {
    return [=](Communicator& c) { return c.broadcast({}, data, 5, DType::kF32, root); };
  };
  expect_refused(broadcast(0), broadcast(1), "broadcast from index 0 of 5 F32", "broadcast from index 1 of 5 F32");
  expect_refused([&](Communicator& c) { return c.reduce_scatter({}, data, 5, DType::kF32); }, gather,
                 "reduce-scatter of 5 F32", "all-gather of 5 F32");
  expect_refused([&](Communicator& c) { return c.send({}, data, 5, DType::kF32, 1); },
                 [&](Communicator& c) { return c.receive({}, data, 6, DType::kF32, 0); }, "send of 5 F32",
                 "receive of 6 F32");
}

TEST(ThreadWorld, ALostRankEndsTheWaitOfTheOthers) {
  ThreadWorld world(3, kLong);
  const auto outcomes = run_ranks(3, [&](int rank) {
    const auto communicator = world.make_communicator(everybody(3), rank);
    if (rank == 2) {
      world.report_lost(2, "NaN in the loss");
      world.report_lost(1, "a second report changes nothing");
    } else {
      communicator->barrier();
    }
  });
  EXPECT_FALSE(outcomes[2].failed);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(outcomes[static_cast<std::size_t>(rank)].code, ExitCode::kRankLost);
    const std::string& message = outcomes[static_cast<std::size_t>(rank)].message;
    EXPECT_NE(message.find("rank 2 was lost: NaN in the loss"), std::string::npos) << message;
  }
}

// A rank that fails frees its data while others may be at them.
TEST(ThreadWorld, DeathWhileSegmentsAreWorkedOn) {
  for (int round = 0; round < 40; ++round) {
    ThreadWorld world(3, kLong);
    const auto outcomes = run_ranks(3, [&](int rank) {
      const auto communicator = world.make_communicator(everybody(3), rank);
      std::vector<std::vector<float>> values(4, std::vector<float>(200'000, 1.0F));
      std::vector<std::unique_ptr<Request>> requests;
      for (auto& data : values) requests.push_back(all_reduce(*communicator, data));
      if (rank == 2) {
        for (int i = 0; i < 100 * round; ++i) std::this_thread::yield();
        world.report_lost(2, "NaN in the loss");
        return;
      }
      for (const auto& request : requests) request->wait();
      communicator->barrier();
    });
    for (const std::size_t rank : {0U, 1U}) {
      EXPECT_EQ(outcomes[rank].code, ExitCode::kRankLost);
      EXPECT_NE(outcomes[rank].message.find("rank 2 was lost: NaN in the loss"), std::string::npos);
    }
  }
}

TEST(ThreadWorld, NamesAreChecked) {
  EXPECT_THROW(ThreadWorld(0, kLong), InternalError);
  EXPECT_THROW(ThreadWorld(2, Seconds{0}), InternalError);
  ThreadWorld world(2, kLong);
  EXPECT_THROW(world.make_communicator({"data", {0}}, 1), InternalError);
  EXPECT_THROW(world.make_communicator({"data", {0, 2}}, 0), InternalError);
  EXPECT_THROW(world.make_communicator({"data", {0, 0}}, 0), InternalError);
  const auto alone = world.make_communicator({"data", {0}}, 0);
  std::byte data[8]{};
  EXPECT_THROW(alone->send({}, data, 1, DType::kF32, 0), InternalError);
  EXPECT_THROW(alone->receive({}, data, 1, DType::kF32, 1), InternalError);
  EXPECT_THROW(alone->broadcast({}, data, 1, DType::kF32, 1), InternalError);
  EXPECT_THROW(alone->all_gather({}, data, -1, DType::kF32), InternalError);
  EXPECT_THROW(alone->all_reduce({}, data, 1, DType::kBF16, Reduction::kMax), InternalError);
  EXPECT_THROW(alone->reduce_scatter({}, data, -1, DType::kF16), InternalError);
}

TEST(ThreadWorld, CommunicatorsOutliveIt) {
  auto world = std::make_unique<ThreadWorld>(1, kLong);
  const auto alone = world->make_communicator({"data", {0}}, 0);
  world.reset();
  std::vector<float> values{3.0F};
  all_reduce(*alone, values)->wait();
  EXPECT_EQ(values[0], 3.0F);
}

}  // namespace
}  // namespace trireme::comm
