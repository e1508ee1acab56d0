#include "engine/comm/faults.h"

#include <chrono>
#include <limits>
#include <thread>

#include <gtest/gtest.h>

#include "engine/comm/test_ranks.h"
#include "engine/comm/threads.h"

namespace trireme::comm {
namespace {

double since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

using Body = std::function<void(int, Communicator&)>;

// Rank 0 suffers the plan.
std::vector<RankOutcome> run(const FaultPlan& plan, const Body& body, Seconds deadline = {20}) {
  ThreadWorld world(2, deadline);
  return run_ranks(2, [&](int rank) {
    const auto state = std::make_shared<FaultState>(rank == 0 ? plan : FaultPlan{});
    const auto c = make_faulty_communicator(world.make_communicator(everybody(2), rank), state);
    try {
      body(rank, *c);
    } catch (const Error& error) {
      world.report_lost(rank, error.what());
      throw;
    }
  });
}

void expect_all_well(const std::vector<RankOutcome>& outcomes) {
  for (const RankOutcome& outcome : outcomes) EXPECT_FALSE(outcome.failed) << outcome.message;
}

FaultPlan planned(Operation operation, std::int64_t call, FaultAction action) {
  return {.link = {}, .faults = {{.axis = "data", .operation = operation, .call = call, .action = std::move(action)}}};
}

void sum(Communicator& c, std::vector<float>& values) {
  c.all_reduce({}, bytes_of(values), std::ssize(values), DType::kF32, Reduction::kSum)->wait();
}

TEST(Faults, AnEmptyPlanChangesNothing) {
  expect_all_well(run({}, [](int rank, Communicator& c) {
    std::vector<float> values(5, 1.0F);
    sum(c, values);
    EXPECT_EQ(values, std::vector<float>(5, 2.0F));
    c.reduce_scatter({}, bytes_of(values), 5, DType::kF32)->wait();
    c.broadcast({}, bytes_of(values), 5, DType::kF32, 1)->wait();
    const auto message = rank == 0 ? c.send({}, bytes_of(values), 5, DType::kF32, 1)
                                   : c.receive({}, bytes_of(values), 5, DType::kF32, 0);
    while (!message->done()) c.progress();
    EXPECT_LE(message->completed_at(), Clock::now());
    c.barrier();
  }));
}

TEST(Faults, ADelayIsThatOfTheGivenCallAndDoesNotBlockPosting) {
  expect_all_well(run(planned(Operation::kAllGather, 2, DelayFault{{0.1}}), [](int rank, Communicator& c) {
    std::vector<float> values(6, 1.0F), others(6);
    c.all_gather({}, bytes_of(values), 6, DType::kF32)->wait();
    sum(c, values);
    const auto begin = Clock::now();
    const auto request = c.all_gather({}, bytes_of(others), 6, DType::kF32);
    if (rank == 1) {
      request->wait();
      c.all_gather({}, bytes_of(others), 6, DType::kF32)->wait();
      return;
    }
    EXPECT_LT(since(begin), 0.09);
    EXPECT_FALSE(request->done());
    request->wait();
    EXPECT_GE(since(begin), 0.1);
    EXPECT_TRUE(request->done());
    const auto when = std::chrono::duration<double>(request->completed_at() - begin).count();
    EXPECT_GE(when, 0.1);
    EXPECT_LE(when, since(begin));
    const auto again = Clock::now();
    c.all_gather({}, bytes_of(others), 6, DType::kF32)->wait();
    EXPECT_LT(since(again), 0.09);
  }));
}

TEST(Faults, ADestroyedRequestIsDueToo) {
  expect_all_well(run(planned(Operation::kSend, 1, DelayFault{{0.05}}), [](int rank, Communicator& c) {
    float value = 0;
    auto* data = reinterpret_cast<std::byte*>(&value);
    const auto begin = Clock::now();
    if (rank == 0) c.send({}, data, 1, DType::kF32, 1);
    if (rank == 1) c.receive({}, data, 1, DType::kF32, 0);
    if (rank == 0) {
      EXPECT_GE(since(begin), 0.05);
    }
  }));
}

TEST(Faults, BarriersAndReceivesAreDelayed) {
  FaultPlan plan = planned(Operation::kBarrier, 1, DelayFault{{0.03}});
  plan.faults.push_back({.axis = "data", .operation = Operation::kReceive, .call = 1, .action = DelayFault{{0.03}}});
  expect_all_well(run(plan, [](int rank, Communicator& c) {
    float value = 0;
    auto* data = reinterpret_cast<std::byte*>(&value);
    auto begin = Clock::now();
    c.barrier();
    if (rank == 0) {
      EXPECT_GE(since(begin), 0.03);
    }
    begin = Clock::now();
    if (rank == 0) c.receive({}, data, 1, DType::kF32, 1)->wait();
    if (rank == 1) c.send({}, data, 1, DType::kF32, 0)->wait();
    if (rank == 0) {
      EXPECT_GE(since(begin), 0.03);
    }
  }));
}

// 10 kB/s and 20 ms. Of 1000 bytes, rank 0 sends all in a message, as much in an all-reduce of two; half in a gather.
TEST(Faults, TransfersFollowOneAnotherOnTheLink) {
  const FaultPlan plan{.link = {.latency = {0.02}, .bytes_per_s = 10e3}, .faults = {}};
  expect_all_well(run(plan, [](int rank, Communicator& c) {
    std::vector<float> a(250), b(250), d(250), e(250);
    if (rank == 1) {
      c.receive({}, bytes_of(a), 250, DType::kF32, 0)->wait();
      c.all_reduce({}, bytes_of(b), 250, DType::kF32, Reduction::kSum)->wait();
      c.all_gather({}, bytes_of(d), 250, DType::kF32)->wait();
      c.send({}, bytes_of(e), 250, DType::kF32, 0)->wait();
      return;
    }
    const auto begin = Clock::now();
    const auto at = [&](const Request& request) {
      return std::chrono::duration<double>(request.completed_at() - begin).count();
    };
    const auto message = c.send({}, bytes_of(a), 250, DType::kF32, 1);
    const auto all = c.all_reduce({}, bytes_of(b), 250, DType::kF32, Reduction::kSum);
    const auto gather = c.all_gather({}, bytes_of(d), 250, DType::kF32);
    const auto incoming = c.receive({}, bytes_of(e), 250, DType::kF32, 1);
    const double posted = since(begin);
    incoming->wait();
    gather->wait();
    all->wait();
    message->wait();
    EXPECT_GE(at(*message), 0.12);
    EXPECT_GE(at(*all), 0.22);
    EXPECT_GE(at(*gather), 0.27);
    EXPECT_LE(at(*gather), 0.27 + posted);
    EXPECT_GE(at(*incoming), 0.12);
    EXPECT_LT(at(*incoming), at(*gather));  // the other direction is free
  }));
}

TEST(Faults, AFailedCallIsALostRank) {
  const auto outcomes = run(planned(Operation::kAllReduce, 3, FailFault{"link down"}), [](int, Communicator& c) {
    std::vector<float> values(5);
    for (int i = 0; i < 4; ++i) sum(c, values);
  });
  EXPECT_EQ(outcomes[0].code, ExitCode::kRankLost);
  EXPECT_EQ(outcomes[0].message, "comm: all-reduce (sum) of 5 F32 over data: injected: link down");
  EXPECT_EQ(outcomes[1].code, ExitCode::kRankLost);
  EXPECT_NE(outcomes[1].message.find("rank 0 was lost"), std::string::npos) << outcomes[1].message;
}

TEST(Faults, AHangIsBounded) {
  const auto begin = Clock::now();
  const auto outcomes =
      run(planned(Operation::kBarrier, 1, HangFault{{0.15}}), [](int, Communicator& c) { c.barrier(); });
  EXPECT_GE(since(begin), 0.15);
  EXPECT_EQ(outcomes[0].code, ExitCode::kHang);
  EXPECT_EQ(outcomes[0].message, "comm: barrier over data: injected hang: 150.0 ms have passed");
  EXPECT_EQ(outcomes[1].code, ExitCode::kRankLost);
}

TEST(Faults, AHangMakesItsPeersDeadlinePass) {
  const auto outcomes = run(planned(Operation::kAllReduce, 1, HangFault{{0.5}}),
                            [](int, Communicator& c) {
                              std::vector<float> values(5);
                              sum(c, values);
                            },
                            {0.1});
  EXPECT_EQ(outcomes[1].code, ExitCode::kHang);
  EXPECT_NE(outcomes[1].message.find("missing: 0"), std::string::npos) << outcomes[1].message;
}

TEST(Faults, AHangIsReleased) {
  const auto state = std::make_shared<FaultState>(planned(Operation::kBarrier, 1, HangFault{{20}}));
  const auto c = make_faulty_communicator(make_self_communicator("data", 0), state);
  const auto begin = Clock::now();
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    state->release();
  });
  try {
    c->barrier();
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kHang);
    EXPECT_STREQ(error.what(), "comm: barrier over data: injected hang: released");
  }
  EXPECT_LT(since(begin), 10);
  other.join();
}

TEST(FaultsDeathTest, AnExitEndsTheProcessAtOnce) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        const auto state = std::make_shared<FaultState>(planned(Operation::kBarrier, 2, ExitFault{41}));
        const auto c = make_faulty_communicator(make_self_communicator("data", 0), state);
        c->barrier();
        c->barrier();
      },
      testing::ExitedWithCode(41), "");
}

TEST(Faults, ABitFlipsOnceTheDataAreComplete) {
  const FaultPlan plan = planned(Operation::kAllReduce, 1, FlipBitFault{32 + 31 + 7 * 64});  // of 64 bits
  expect_all_well(run(plan, [](int rank, Communicator& c) {
    std::vector<float> values{1.0F, 2.0F}, none;
    const auto request = c.all_reduce({}, bytes_of(values), 2, DType::kF32, Reduction::kSum);
    request->wait();
    request->wait();
    EXPECT_TRUE(request->done());
    EXPECT_EQ(values, (std::vector<float>{2.0F, rank == 0 ? -4.0F : 4.0F}));
    sum(c, none);
  }));
  expect_all_well(run(planned(Operation::kReceive, 1, FlipBitFault{}), [](int rank, Communicator& c) {
    std::vector<std::int32_t> values{6};
    if (rank == 1) return c.send({}, bytes_of(values), 1, DType::kI32, 0)->wait();
    const auto request = c.receive({}, bytes_of(values), 1, DType::kI32, 1);
    while (!request->done()) c.progress();
    EXPECT_EQ(values[0], 7);
  }));
  expect_all_well(run(planned(Operation::kAllGather, 1, FlipBitFault{}), [](int, Communicator& c) {
    c.all_gather({}, nullptr, 0, DType::kF32)->wait();  // has no bit
  }));
}

TEST(Faults, CallsAreCountedByAxisOverAllCommunicators) {
  const auto state = std::make_shared<FaultState>(planned(Operation::kBarrier, 2, FailFault{"now"}));
  const auto data = make_faulty_communicator(make_self_communicator("data", 0), state);
  const auto again = make_faulty_communicator(make_self_communicator("data", 0), state);
  const auto tensor = make_faulty_communicator(make_self_communicator("tensor", 0), state);
  data->barrier();
  tensor->barrier();
  tensor->barrier();
  EXPECT_THROW(again->barrier(), Error);
  data->barrier();
}

TEST(Faults, AFailingWaitIsPassedOn) {
  const auto outcomes = run(planned(Operation::kReceive, 1, DelayFault{{1000}}),
                            [](int rank, Communicator& c) {
                              float value = 0;
                              if (rank == 0)
                                c.receive({}, reinterpret_cast<std::byte*>(&value), 1, DType::kF32, 1)->wait();
                            },
                            {0.1});
  EXPECT_EQ(outcomes[0].code, ExitCode::kHang);
}

TEST(Faults, ImpossiblePlansAreRefused) {
  const auto sentence = [](const FaultPlan& plan) {
    const Status status = check_fault_plan(plan);
    EXPECT_THROW(FaultState{plan}, InternalError);
    return status.ok() ? "" : status.failure().sentence();
  };
  EXPECT_EQ(sentence({.link = {.latency = {-1}}}),
            "link.latency = -1: the link's figures are numbers, not negative; nearest legal: 0");
  EXPECT_EQ(sentence({.link = {.latency = {}, .bytes_per_s = std::numeric_limits<double>::quiet_NaN()}}),
            "link.bytes_per_s = nan: the link's figures are numbers, not negative; nearest legal: 0");
  EXPECT_EQ(sentence(planned(Operation::kSend, 0, ExitFault{})),
            "faults[0].call = 0: calls count from 1; nearest legal: 1");
  EXPECT_EQ(sentence(planned(Operation::kSend, 1, DelayFault{{-0.5}})),
            "faults[0].by = -0.5: a time is a number of seconds, not negative; nearest legal: 0");
  EXPECT_EQ(sentence(planned(Operation::kSend, 1, HangFault{{-0.5}})),
            "faults[0].limit = -0.5: a time is a number of seconds, not negative; nearest legal: 0");
  EXPECT_EQ(sentence(planned(Operation::kAllGather, 1, FlipBitFault{-1})),
            "faults[0].bit = -1: bits count from 0; nearest legal: 0");
  EXPECT_EQ(sentence(planned(Operation::kBarrier, 1, FlipBitFault{})),
            "faults[0].operation = barrier: a bit flips in data that the operation writes; nearest legal: all-reduce, "
            "reduce-scatter, all-gather, broadcast, receive");
  EXPECT_TRUE(check_fault_plan(planned(Operation::kAllReduce, 1, FailFault{})).ok());
}

}  // namespace
}  // namespace trireme::comm
