// Operations that are outstanding: what a rank need not do for its peers, and in which order it may wait.

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "engine/comm/test_ranks.h"
#include "engine/comm/threads.h"

namespace trireme::comm {
namespace {

constexpr Seconds kDeadline{20};

void expect_all_well(const std::vector<RankOutcome>& outcomes) {
  for (const RankOutcome& outcome : outcomes) EXPECT_FALSE(outcome.failed) << outcome.message;
}

std::unique_ptr<Request> all_reduce(Communicator& c, std::vector<std::int64_t>& values) {
  return c.all_reduce({}, bytes_of(values), std::ssize(values), DType::kI64, Reduction::kSum);
}

TEST(ThreadOutstanding, ManyWaitedForInAnyOrder) {
  constexpr int kOperations = 150;
  for (const int ranks : {1, 2, 4, 8}) {
    ThreadWorld world(ranks, kDeadline);
    expect_all_well(run_ranks(ranks, [&](int rank) {
      const auto data = world.make_communicator(everybody(ranks), rank);
      const auto tensor = world.make_communicator(everybody(ranks, "tensor"), rank);
      std::vector<std::vector<std::int64_t>> values;
      std::vector<std::unique_ptr<Request>> requests;
      for (int i = 0; i < kOperations; ++i) values.emplace_back(static_cast<std::size_t>(i * i), rank + i);
      for (int i = 0; i < kOperations; ++i) {
        requests.push_back(all_reduce(i % 2 == 0 ? *data : *tensor, values[static_cast<std::size_t>(i)]));
        if (i % 5 == 0) data->progress();
      }
      for (int i = 0; i < kOperations; ++i) {  // each rank in an order of its own
        requests[static_cast<std::size_t>((i * 7 + rank * 31) % kOperations)]->wait();
      }
      for (int i = 0; i < kOperations; ++i) {
        const std::int64_t sum = ranks * (ranks - 1) / 2 + ranks * i;
        EXPECT_EQ(values[static_cast<std::size_t>(i)], std::vector<std::int64_t>(static_cast<std::size_t>(i * i), sum));
      }
    }));
  }
}

// Rank 1 does nothing after its call until rank 0 has the result.
TEST(ThreadOutstanding, OneThatWaitsDoesTheWorkOfAll) {
  ThreadWorld world(2, kDeadline);
  std::atomic<bool> has_result = false;
  expect_all_well(run_ranks(2, [&](int rank) {
    const auto c = world.make_communicator(everybody(2), rank);
    std::vector<std::int64_t> sum(300'000, rank + 1);
    std::vector<std::int64_t> gathered(300'000, rank + 1);
    std::vector<std::int64_t> message(300'000, rank + 1);
    std::vector<std::unique_ptr<Request>> requests;
    requests.push_back(all_reduce(*c, sum));
    requests.push_back(c->all_gather({}, bytes_of(gathered), 300'000, DType::kI64));
    requests.push_back(rank == 0 ? c->send({}, bytes_of(message), 300'000, DType::kI64, 1)
                                 : c->receive({}, bytes_of(message), 300'000, DType::kI64, 0));
    if (rank == 0) {
      std::for_each(requests.rbegin(), requests.rend(), [](const auto& request) { request->wait(); });
      has_result = true;
    } else {
      while (!has_result) std::this_thread::yield();
      const Clock::time_point now = Clock::now();
      for (const auto& request : requests) {
        EXPECT_TRUE(request->done());
        EXPECT_LE(request->completed_at(), now);  // not when this rank looked
      }
    }
    EXPECT_EQ(sum, std::vector<std::int64_t>(300'000, 3));
    EXPECT_EQ(gathered.front(), 1);
    EXPECT_EQ(gathered.back(), 2);
    EXPECT_EQ(message, std::vector<std::int64_t>(300'000, 1));
  }));
}

TEST(ThreadOutstanding, SmallOnesMoveWhenTheLastHasCalled) {
  ThreadWorld world(2, kDeadline);
  const auto a = world.make_communicator(everybody(2), 0);
  const auto b = world.make_communicator(everybody(2), 1);
  std::vector<std::int64_t> mine(100, 1);
  std::vector<std::int64_t> theirs(100, 2);
  const auto request = all_reduce(*a, mine);
  const auto other = all_reduce(*b, theirs);
  const Clock::time_point now = Clock::now();
  EXPECT_EQ(mine, std::vector<std::int64_t>(100, 3));
  EXPECT_TRUE(request->done());
  EXPECT_LE(request->completed_at(), now);
  EXPECT_EQ(other->completed_at(), request->completed_at());
}

TEST(ThreadOutstanding, ProgressAndDoneMoveWhatAllHavePosted) {
  ThreadWorld world(2, kDeadline);
  const auto a = world.make_communicator(everybody(2), 0);
  const auto b = world.make_communicator(everybody(2), 1);
  for (const bool asks : {false, true}) {
    std::vector<std::int64_t> mine(100'000, 1);
    std::vector<std::int64_t> theirs(100'000, 2);
    const auto request = all_reduce(*a, mine);
    a->progress();
    EXPECT_FALSE(request->done());
    const auto other = all_reduce(*b, theirs);
    asks ? static_cast<void>(request->done()) : a->progress();
    EXPECT_EQ(mine, std::vector<std::int64_t>(100'000, 3));
    EXPECT_EQ(theirs, mine);
    EXPECT_TRUE(other->done());
    EXPECT_EQ(other->completed_at(), request->completed_at());
  }
}

TEST(ThreadOutstanding, ARequestThatIsNotWaitedForWaitsWhenItEnds) {
  ThreadWorld world(3, kDeadline);
  expect_all_well(run_ranks(3, [&](int rank) {
    const auto c = world.make_communicator(everybody(3), rank);
    std::vector<std::int64_t> values(50'000, rank);
    all_reduce(*c, values).reset();
    EXPECT_EQ(values, std::vector<std::int64_t>(50'000, 3));
  }));
}

}  // namespace
}  // namespace trireme::comm
