#include "engine/comm/threads.h"

#include <algorithm>
#include <atomic>
#include <functional>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "engine/comm/test_ranks.h"

namespace trireme::comm {
namespace {

constexpr Seconds kDeadline{20};

// Numbers whose sum depends on its order.
template <class T>
std::vector<T> values_of(int rank, std::int64_t count) {
  std::vector<T> values(static_cast<std::size_t>(count));
  const RandomKey key{2, static_cast<std::uint64_t>(rank)};
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<T>(1000 * random_normal(key, i));
  return values;
}

template <class T>
std::vector<T> sum_in_order(int ranks, std::int64_t count) {
  std::vector<T> sum = values_of<T>(0, count);
  for (int rank = 1; rank < ranks; ++rank) {
    const std::vector<T> addend = values_of<T>(rank, count);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = sum[i] + addend[i];
  }
  return sum;
}

void expect_all_well(const std::vector<RankOutcome>& outcomes) {
  for (const RankOutcome& outcome : outcomes) EXPECT_FALSE(outcome.failed) << outcome.message;
}

struct Shape {
  int ranks;
  std::int64_t count;

  void run(const std::function<void(int, Communicator&)>& body) const {
    ThreadWorld world(ranks, kDeadline);
    expect_all_well(run_ranks(ranks, [&](int rank) {
      const auto communicator = world.make_communicator(everybody(ranks), rank);
      EXPECT_EQ(communicator->index(), rank);
      EXPECT_EQ(communicator->size(), ranks);
      body(rank, *communicator);
    }));
  }

  template <class T>
  void check_all_reduce(DType dtype) const {
    const std::vector<T> expected = sum_in_order<T>(ranks, count);
    run([&](int rank, Communicator& communicator) {
      for (int round = 0; round < 3; ++round) {
        std::vector<T> values = values_of<T>(rank, count);
        communicator.all_reduce({}, bytes_of(values), count, dtype, Reduction::kSum)->wait();
        EXPECT_EQ(values, expected);
      }
    });
  }
};

// Elements: none, one, odd, fewer than ranks, many, several segments.
void for_all_shapes(const std::function<void(const Shape&)>& check) {
  const auto traced = [&](int ranks, std::int64_t count) {
    SCOPED_TRACE(fmt::format("{} elements over {} ranks", count, ranks));
    check({ranks, count});
  };
  for (const int ranks : {1, 2, 3, 4, 5, 7, 8}) {
    for (const std::int64_t count : {0, 1, 5, 3001}) traced(ranks, count);
  }
  for (const int ranks : {2, 3, 8}) traced(ranks, 100'003);
}

TEST(ThreadCollectives, AllReduceSumsInAscendingOrder) {
  for_all_shapes([](const Shape& shape) {
    shape.check_all_reduce<float>(DType::kF32);
    shape.check_all_reduce<double>(DType::kF64);
    shape.check_all_reduce<std::int32_t>(DType::kI32);
    shape.check_all_reduce<std::int64_t>(DType::kI64);
  });
}

TEST(ThreadCollectives, AllReduceMaximum) {
  for_all_shapes([](const Shape& shape) {
    std::vector<float> expected = values_of<float>(0, shape.count);
    for (int rank = 1; rank < shape.ranks; ++rank) {
      const std::vector<float> other = values_of<float>(rank, shape.count);
      for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = std::max(expected[i], other[i]);
    }
    shape.run([&](int rank, Communicator& communicator) {
      std::vector<float> values = values_of<float>(rank, shape.count);
      communicator.all_reduce({}, bytes_of(values), shape.count, DType::kF32, Reduction::kMax)->wait();
      EXPECT_EQ(values, expected);
    });
  });
}

TEST(ThreadCollectives, ReduceScatterGivesEachItsShare) {
  for_all_shapes([](const Shape& shape) {
    const std::vector<float> expected = sum_in_order<float>(shape.ranks, shape.count);
    shape.run([&](int rank, Communicator& communicator) {
      std::vector<float> values = values_of<float>(rank, shape.count);
      const std::vector<float> before = values;
      communicator.reduce_scatter({}, bytes_of(values), shape.count, DType::kF32)->wait();
      const Share share = share_of(shape.count, rank, shape.ranks);
      for (std::int64_t i = 0; i < shape.count; ++i) {
        const auto e = static_cast<std::size_t>(i);
        EXPECT_EQ(values[e], i >= share.begin && i < share.end ? expected[e] : before[e]);
      }
    });
  });
}

TEST(ThreadCollectives, AllGatherCollectsTheShares) {
  for_all_shapes([](const Shape& shape) {
    std::vector<double> expected;
    for (int rank = 0; rank < shape.ranks; ++rank) {
      const Share share = share_of(shape.count, rank, shape.ranks);
      const std::vector<double> values = values_of<double>(rank, shape.count);
      expected.insert(expected.end(), values.begin() + share.begin, values.begin() + share.end);
    }
    shape.run([&](int rank, Communicator& communicator) {
      std::vector<double> values = values_of<double>(rank, shape.count);
      communicator.all_gather({}, bytes_of(values), shape.count, DType::kF64)->wait();
      EXPECT_EQ(values, expected);
    });
  });
}

TEST(ThreadCollectives, BroadcastFromEachRank) {
  for_all_shapes([](const Shape& shape) {
    shape.run([&](int rank, Communicator& communicator) {
      for (int root = 0; root < shape.ranks; ++root) {
        std::vector<std::int32_t> values = values_of<std::int32_t>(rank, shape.count);
        communicator.broadcast({}, bytes_of(values), shape.count, DType::kBF16, root)->wait();  // half of the bytes
        const std::vector<std::int32_t> source = values_of<std::int32_t>(root, shape.count);
        EXPECT_EQ(std::vector(values.begin(), values.begin() + shape.count / 2),
                  std::vector(source.begin(), source.begin() + shape.count / 2));
      }
    });
  });
}

TEST(ThreadCommunicator, GroupsOfOneWorldAreIndependent) {
  // Four ranks as 2 x 2: rank r is in a tensor group {r / 2 * 2, + 1} and a data group {r % 2, + 2}.
  ThreadWorld world(4, kDeadline);
  expect_all_well(run_ranks(4, [&](int rank) {
    const int first = rank / 2 * 2;
    const auto tensor = world.make_communicator({"tensor", {first, first + 1}}, rank);
    const auto data = world.make_communicator({"data", {rank % 2, rank % 2 + 2}}, rank);
    EXPECT_EQ(tensor->index(), rank % 2);
    EXPECT_EQ(data->index(), rank / 2);
    for (int round = 0; round < 20; ++round) {
      std::vector<std::int64_t> values{rank, 10 * rank, 100 * rank};
      tensor->all_reduce({}, bytes_of(values), 3, DType::kI64, Reduction::kSum)->wait();
      EXPECT_EQ(values[0], 2 * first + 1);
      data->all_reduce({}, bytes_of(values), 3, DType::kI64, Reduction::kSum)->wait();
      EXPECT_EQ(values, (std::vector<std::int64_t>{6, 60, 600}));
    }
  }));
}

TEST(ThreadCommunicator, TheSameGroupTwiceIsTwoGroups) {
  ThreadWorld world(2, kDeadline);
  expect_all_well(run_ranks(2, [&](int rank) {
    const auto first = world.make_communicator(everybody(2), rank);
    const auto second = world.make_communicator(everybody(2), rank);
    // A message of one group is not received by the other.
    std::vector<std::int32_t> one{1};
    std::vector<std::int32_t> two{2};
    if (rank == 0) {
      const auto a = first->send({}, bytes_of(one), 1, DType::kI32, 1);
      const auto b = second->send({}, bytes_of(two), 1, DType::kI32, 1);
    } else {
      second->receive({}, bytes_of(one), 1, DType::kI32, 0)->wait();
      first->receive({}, bytes_of(two), 1, DType::kI32, 0)->wait();
      EXPECT_EQ(one[0], 2);
      EXPECT_EQ(two[0], 1);
    }
  }));
}

TEST(ThreadCommunicator, SumsFollowTheOrderOfTheGroup) {
  ThreadWorld world(3, kDeadline);
  const GroupName name{"data", {2, 0, 1}};
  expect_all_well(run_ranks(3, [&](int rank) {
    const auto communicator = world.make_communicator(name, rank);
    std::vector<float> values{rank == 2 ? 0x1p25F : 1.0F};
    communicator->all_reduce({}, bytes_of(values), 1, DType::kF32, Reduction::kSum)->wait();
    EXPECT_EQ(values[0], 0x1p25F);  // the large one first: the ones are lost
  }));
}

TEST(ThreadCommunicator, MessagesArriveInOrder) {
  ThreadWorld world(2, kDeadline);
  expect_all_well(run_ranks(2, [&](int rank) {
    const auto communicator = world.make_communicator(everybody(2, "pipeline"), rank);
    std::vector<std::int32_t> values(100);
    std::vector<std::unique_ptr<Request>> requests;
    for (std::size_t i = 0; i < values.size(); ++i) {
      auto* data = reinterpret_cast<std::byte*>(&values[i]);
      if (rank == 0) values[i] = static_cast<std::int32_t>(i);
      requests.push_back(rank == 0 ? communicator->send({}, data, 1, DType::kI32, 1)
                                   : communicator->receive({}, data, 1, DType::kI32, 0));
    }
    for (const auto& request : requests) request->wait();
    for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], static_cast<std::int32_t>(i));
  }));
}

TEST(ThreadCommunicator, BothMaySendBeforeTheyReceive) {
  ThreadWorld world(2, kDeadline);
  expect_all_well(run_ranks(2, [&](int rank) {
    const auto communicator = world.make_communicator(everybody(2, "pipeline"), rank);
    std::vector<double> mine{1.0 + rank, 2.0};
    std::vector<double> theirs(2);
    const auto sent = communicator->send({}, bytes_of(mine), 2, DType::kF64, 1 - rank);
    const auto received = communicator->receive({}, bytes_of(theirs), 2, DType::kF64, 1 - rank);
    communicator->progress();
    received->wait();
    EXPECT_TRUE(received->done());
    sent->wait();
    sent->wait();
    EXPECT_EQ(theirs[0], 2.0 - rank);
    const auto nothing = rank == 0 ? communicator->send({}, nullptr, 0, DType::kF64, 1)
                                   : communicator->receive({}, nullptr, 0, DType::kF64, 0);
  }));
}

TEST(ThreadCommunicator, ARequestThatIsNotWaitedForWaitsWhenItEnds) {
  ThreadWorld world(2, kDeadline);
  std::vector<std::int32_t> received(1);
  expect_all_well(run_ranks(2, [&](int rank) {
    const auto communicator = world.make_communicator(everybody(2), rank);
    if (rank == 0) {
      std::vector<std::int32_t> value{42};
      const auto sent = communicator->send({}, bytes_of(value), 1, DType::kI32, 1);
      while (!sent->done()) std::this_thread::yield();
    } else {
      const auto request = communicator->receive({}, bytes_of(received), 1, DType::kI32, 0);
    }
  }));
  EXPECT_EQ(received[0], 42);
}

TEST(ThreadCommunicator, NobodyLeavesABarrierBeforeAllHaveCome) {
  ThreadWorld world(5, kDeadline);
  std::atomic<int> arrived = 0;
  expect_all_well(run_ranks(5, [&](int rank) {
    const auto communicator = world.make_communicator(everybody(5), rank);
    for (int round = 1; round <= 10; ++round) {
      ++arrived;
      communicator->barrier();
      EXPECT_GE(arrived.load(), 5 * round);
      communicator->barrier();
    }
  }));
}

}  // namespace
}  // namespace trireme::comm
