#include "engine/comm/counting.h"

#include <gtest/gtest.h>

#include "engine/comm/test_ranks.h"
#include "engine/comm/threads.h"

namespace trireme::comm {
namespace {

// What each of three ranks sends of five elements, whose shares are 1, 2 and 2.
TEST(CountingCommunicator, BytesOfEachCollective) {
  ThreadWorld world(3, Seconds{20});
  std::vector<TrafficCounters> counters(3);
  const auto outcomes = run_ranks(3, [&](int rank) {
    const auto c = make_counting_communicator(world.make_communicator({"data", {0, 1, 2}}, rank),
                                              counters[static_cast<std::size_t>(rank)]);
    EXPECT_EQ(c->index(), rank);
    EXPECT_EQ(c->size(), 3);
    EXPECT_EQ(c->name().axis, "data");
    std::vector<float> values(5, 1.0F);
    auto* data = reinterpret_cast<std::byte*>(values.data());
    c->all_reduce({}, data, 5, DType::kF32, Reduction::kSum)->wait();
    EXPECT_EQ(values[4], 3.0F);
    c->reduce_scatter({}, data, 5, DType::kF32)->wait();
    c->reduce_scatter({}, data, 5, DType::kF32)->wait();
    c->all_gather({}, data, 5, DType::kF32)->wait();
    c->broadcast({}, data, 5, DType::kF32, 1)->wait();
    if (rank == 0) c->send({}, data, 5, DType::kF32, 2)->wait();
    if (rank == 2) c->receive({}, data, 5, DType::kF32, 0)->wait();
    c->barrier();
    c->progress();
  });
  for (const RankOutcome& outcome : outcomes) EXPECT_FALSE(outcome.failed) << outcome.message;
  EXPECT_EQ(counters[0].counts(), (std::vector<TrafficCount>{{"data", "all-gather", 1, {4 * 3}},
                                                             {"data", "all-reduce", 1, {4 * (4 + 3)}},
                                                             {"data", "broadcast", 1, {0}},
                                                             {"data", "reduce-scatter", 2, {4 * (4 + 4)}},
                                                             {"data", "send", 1, {4 * 5}}}));
  EXPECT_EQ(counters[1].counts(), (std::vector<TrafficCount>{{"data", "all-gather", 1, {4 * 3}},
                                                             {"data", "all-reduce", 1, {4 * (3 + 3)}},
                                                             {"data", "broadcast", 1, {4 * 10}},
                                                             {"data", "reduce-scatter", 2, {4 * (3 + 3)}}}));
  EXPECT_EQ(counters[2].counts(), (std::vector<TrafficCount>{{"data", "all-gather", 1, {4 * 4}},
                                                             {"data", "all-reduce", 1, {4 * (3 + 4)}},
                                                             {"data", "broadcast", 1, {0}},
                                                             {"data", "reduce-scatter", 2, {4 * (3 + 3)}}}));
}

// All that is sent is all that is received: N - 1 copies of every element, for the scatter and for the gather.
TEST(CountingCommunicator, RanksTogetherSendTheWholeToAllOthers) {
  constexpr int kRanks = 5;
  for (const std::int64_t count : {std::int64_t{0}, std::int64_t{3}, std::int64_t{17}}) {
    ThreadWorld world(kRanks, Seconds{20});
    std::vector<TrafficCounters> counters(kRanks);
    run_ranks(kRanks, [&](int rank) {
      const auto c = make_counting_communicator(world.make_communicator({"data", {0, 1, 2, 3, 4}}, rank),
                                                counters[static_cast<std::size_t>(rank)]);
      std::vector<double> values(static_cast<std::size_t>(count));
      c->all_reduce({}, reinterpret_cast<std::byte*>(values.data()), count, DType::kF64, Reduction::kSum)->wait();
    });
    Bytes sum;
    for (const TrafficCounters& rank : counters) sum += rank.counts().at(0).sent;
    EXPECT_EQ(sum.count, 2 * (kRanks - 1) * count * 8);
  }
}

TEST(CountingCommunicator, AllReducesAreOfTheGroupsAlgorithm) {
  ThreadWorld world(3, Seconds{20});
  std::vector<TrafficCounters> counters(3);
  run_ranks(3, [&](int rank) {
    const auto c =
        make_counting_communicator(world.make_communicator({"data", {0, 1, 2}}, rank),
                                   counters[static_cast<std::size_t>(rank)], ReduceAlgorithm::kHierarchical, {0, 1, 1});
    std::vector<float> values(5);
    auto* data = reinterpret_cast<std::byte*>(values.data());
    c->all_reduce({}, data, 5, DType::kF32, Reduction::kSum)->wait();
    c->all_gather({}, data, 5, DType::kF32)->wait();
  });
  // The first ranks of two hosts exchange halves, 2 and 3 elements, and members 1 and 2 all five.
  const std::vector<std::int64_t> expected{5, 5 + 5, 5};
  for (int rank = 0; rank < 3; ++rank) {
    const std::vector<TrafficCount> counts = counters[static_cast<std::size_t>(rank)].counts();
    ASSERT_EQ(counts.size(), 2U);
    EXPECT_EQ(counts[1].collective, "all-reduce");
    EXPECT_EQ(counts[1].sent.count, 4 * expected[static_cast<std::size_t>(rank)]) << rank;
    EXPECT_EQ(counts[0].sent.count,
              4 * sent_elements(ReduceAlgorithm::kOrdered, CollectiveKind::kAllGather, 5, rank, 3));
  }
}

TEST(CountingCommunicator, AxesAreCountedApartAndGroupsOfOneNotAtAll) {
  TrafficCounters counters;
  const auto alone = make_counting_communicator(make_self_communicator("tensor", 0), counters);
  std::byte data[4]{};
  alone->all_reduce({}, data, 1, DType::kF32, Reduction::kSum)->wait();
  EXPECT_TRUE(counters.counts().empty());
  counters.add("tensor", "send", {1});
  counters.add("data", "send", {2});
  counters.add("tensor", "send", {3});
  EXPECT_EQ(counters.counts(), (std::vector<TrafficCount>{{"data", "send", 1, {2}}, {"tensor", "send", 2, {4}}}));
  counters.reset();
  EXPECT_TRUE(counters.counts().empty());
}

}  // namespace
}  // namespace trireme::comm
