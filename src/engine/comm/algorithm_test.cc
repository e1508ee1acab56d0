#include "engine/comm/algorithm.h"

#include <algorithm>
#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include "base/random.h"
#include "engine/comm/counting.h"
#include "engine/comm/faults.h"
#include "engine/comm/message_world.h"
#include "engine/comm/test_ranks.h"
#include "engine/comm/test_transport.h"
#include "engine/comm/threads.h"

namespace trireme::comm {
namespace {

constexpr Seconds kDeadline{20};
const SegmentOptions kSmall{.segment = {128}, .window = 3};

template <class T>
std::vector<T> values_of(int rank, std::int64_t count, int salt = 0) {
  std::vector<T> values(static_cast<std::size_t>(count));
  const RandomKey key{2, static_cast<std::uint64_t>(rank + 100 * salt)};
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<T>(1000 * random_normal(key, i));
  return values;
}

template <class T>
std::vector<T> sum_in_order(int ranks, std::int64_t count, int salt = 0) {
  std::vector<T> sum = values_of<T>(0, count, salt);
  for (int rank = 1; rank < ranks; ++rank) {
    const std::vector<T> addend = values_of<T>(rank, count, salt);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = sum[i] + addend[i];
  }
  return sum;
}

// Pairs of ranks on hosts that alternate: {0, 1, 0, 1, ...} for 1, {0, 0, 1, 1, ...} for 2, one host for 0.
std::vector<int> hosts(int ranks, int kind) {
  std::vector<int> host_of;
  for (int i = 0; i < ranks; ++i) host_of.push_back(kind == 0 ? 4 : kind == 1 ? i % 2 : i / kind);
  return host_of;
}

void expect_all_well(const std::vector<RankOutcome>& outcomes) {
  for (const RankOutcome& outcome : outcomes) EXPECT_FALSE(outcome.failed) << outcome.message;
}

using Body = std::function<void(int, Communicator&)>;

struct Choice {
  Algorithm algorithm = Algorithm::kRing;
  int host_kind = 1;
  SegmentOptions options = kSmall;
};

// With memory for reductions of up to `most` elements.
std::unique_ptr<Communicator> make(std::unique_ptr<Communicator> inner, const Choice& choice,
                                   std::int64_t most = 1 << 20) {
  const int ranks = inner->size();
  const Bytes needed = staging_bytes(choice.algorithm, CollectiveKind::kAllReduce, most, 8, ranks, choice.options);
  return make_algorithm_communicator(std::move(inner), choice.algorithm, hosts(ranks, choice.host_kind),
                                     test_memory(needed), choice.options);
}

std::vector<RankOutcome> run(int ranks, const Choice& choice, const Body& body, Seconds deadline = kDeadline) {
  ThreadWorld world(ranks, deadline);
  return run_ranks(ranks, [&](int rank) {
    const auto communicator = make(world.make_communicator(everybody(ranks), rank), choice);
    body(rank, *communicator);
  });
}

std::vector<RankOutcome> run_over_messages(int ranks, const Choice& choice, const Body& body) {
  TestNetwork network(ranks);
  return run_ranks(ranks, [&](int rank) {
    const MessageOptions options{.deadline = kDeadline, .segments = {.segment = {64}, .window = 2}};
    const auto world =
        std::make_shared<MessageWorld>(std::make_shared<TestTransport>(network, rank), posix_env(), options);
    const Bytes needed = message_staging_bytes(1 << 20, 8, ranks, options.segments);
    const auto communicator =
        make(MessageWorld::make_communicator(world, everybody(ranks), test_memory(needed)), choice);
    body(rank, *communicator);
    world->close();
  });
}

std::string name_of(Algorithm algorithm) {
  std::string name(reduce_algorithm_name(algorithm));
  std::erase(name, '-');
  return name;
}

// Each over many numbers of ranks and elements.
class Algorithms : public testing::TestWithParam<Algorithm> {
 protected:
  Algorithm algorithm() const { return GetParam(); }

  template <class Check>
  void for_all_shapes(const Check& check) const {
    for (const int ranks : {1, 2, 3, 5, 7, 8}) {
      for (const std::int64_t count : {0, 1, 3, 33, 3001}) {
        SCOPED_TRACE(fmt::format("{} elements over {} ranks", count, ranks));
        check(ranks, count);
      }
    }
  }

  template <class T>
  void expect_exact_sums(int ranks, std::int64_t count, DType dtype) {
    const std::vector<T> expected = sum_in_order<T>(ranks, count);
    expect_all_well(run(ranks, {algorithm()}, [&](int rank, Communicator& c) {
      std::vector<T> values = values_of<T>(rank, count);
      c.all_reduce({}, bytes_of(values), count, dtype, Reduction::kSum)->wait();
      EXPECT_EQ(values, expected);
    }));
  }

  // On all ranks.
  template <class T>
  std::vector<std::vector<T>> sums(int ranks, std::int64_t count, DType dtype) {
    std::vector<std::vector<T>> sums(static_cast<std::size_t>(ranks));
    expect_all_well(run(ranks, {algorithm()}, [&](int rank, Communicator& c) {
      std::vector<T>& values = sums[static_cast<std::size_t>(rank)];
      values = values_of<T>(rank, count);
      c.all_reduce({}, bytes_of(values), count, dtype, Reduction::kSum)->wait();
    }));
    return sums;
  }

  template <class T>
  void expect_close_sums(int ranks, std::int64_t count, DType dtype, double tolerance) {
    const std::vector<T> ordered = sum_in_order<T>(ranks, count);
    const std::vector<std::vector<T>> first = sums<T>(ranks, count, dtype);
    EXPECT_EQ(sums<T>(ranks, count, dtype), first) << "from run to run";
    for (const std::vector<T>& rank : first) {
      EXPECT_EQ(rank, first.front()) << "on every rank";
      for (std::size_t i = 0; i < rank.size(); ++i) EXPECT_NEAR(rank[i], ordered[i], tolerance * 1000 * ranks);
      if (ranks <= 2) {
        EXPECT_EQ(rank, ordered);
      }
    }
  }
};
INSTANTIATE_TEST_SUITE_P(All, Algorithms,
                         testing::Values(Algorithm::kOrdered, Algorithm::kRing, Algorithm::kRecursiveDoubling,
                                         Algorithm::kHierarchical, Algorithm::kLibrary),
                         [](const auto& shape) { return name_of(shape.param); });

TEST_P(Algorithms, SumsOfIntegersAreExact) {
  for_all_shapes([&](int ranks, std::int64_t count) {
    expect_exact_sums<std::int32_t>(ranks, count, DType::kI32);
    expect_exact_sums<std::int64_t>(ranks, count, DType::kI64);
  });
}

TEST_P(Algorithms, SumsOfFloatsAreStable) {
  for_all_shapes([&](int ranks, std::int64_t count) {
    expect_close_sums<float>(ranks, count, DType::kF32, 1e-6);
    expect_close_sums<double>(ranks, count, DType::kF64, 1e-15);
  });
}

TEST_P(Algorithms, Maxima) {
  for_all_shapes([&](int ranks, std::int64_t count) {
    std::vector<float> expected = values_of<float>(0, count);
    for (int rank = 1; rank < ranks; ++rank) {
      const std::vector<float> other = values_of<float>(rank, count);
      for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = std::max(expected[i], other[i]);
    }
    expect_all_well(run(ranks, {algorithm()}, [&](int rank, Communicator& c) {
      std::vector<float> values = values_of<float>(rank, count);
      c.all_reduce({}, bytes_of(values), count, DType::kF32, Reduction::kMax)->wait();
      EXPECT_EQ(values, expected);
    }));
  });
}

TEST_P(Algorithms, ReduceScatterGivesEachItsShareAndLeavesTheRest) {
  for_all_shapes([&](int ranks, std::int64_t count) {
    const auto expected = sum_in_order<std::int64_t>(ranks, count);
    expect_all_well(run(ranks, {algorithm()}, [&](int rank, Communicator& c) {
      std::vector<std::int64_t> values = values_of<std::int64_t>(rank, count);
      const std::vector<std::int64_t> before = values;
      c.reduce_scatter({}, bytes_of(values), count, DType::kI64)->wait();
      const Share share = share_of(count, rank, ranks);
      for (std::int64_t i = 0; i < count; ++i) {
        const auto e = static_cast<std::size_t>(i);
        EXPECT_EQ(values[e], i >= share.begin && i < share.end ? expected[e] : before[e]);
      }
    }));
  });
}

// A counter under the algorithm sees its messages.
TEST_P(Algorithms, SendWhatTheFormulaSays) {
  for_all_shapes([&](int ranks, std::int64_t count) {
    for (const int host_kind : {0, 1, 2, 3}) {
      std::vector<TrafficCounters> counters(static_cast<std::size_t>(ranks));
      ThreadWorld world(ranks, kDeadline);
      expect_all_well(run_ranks(ranks, [&](int rank) {
        const auto c = make(make_counting_communicator(world.make_communicator(everybody(ranks), rank),
                                                       counters[static_cast<std::size_t>(rank)]),
                            {algorithm(), host_kind});
        std::vector<double> values(static_cast<std::size_t>(count));
        c->all_reduce({}, bytes_of(values), count, DType::kF64, Reduction::kSum)->wait();
        c->reduce_scatter({}, bytes_of(values), count, DType::kF64)->wait();
        c->all_gather({}, bytes_of(values), count, DType::kF64)->wait();
      }));
      for (int rank = 0; rank < ranks; ++rank) {
        Bytes sent;
        for (const TrafficCount& one : counters[static_cast<std::size_t>(rank)].counts()) sent += one.sent;
        std::int64_t expected = 0;
        for (const auto kind :
             {CollectiveKind::kAllReduce, CollectiveKind::kReduceScatter, CollectiveKind::kAllGather}) {
          expected += sent_elements(algorithm(), kind, count, rank, ranks, hosts(ranks, host_kind));
        }
        EXPECT_EQ(sent.count, 8 * expected) << "rank " << rank << ", hosts " << host_kind;
      }
    }
  });
}

TEST_P(Algorithms, OverMessagesAsOverThreads) {
  for_all_shapes([&](int ranks, std::int64_t count) {
    const std::vector<std::vector<float>> expected = sums<float>(ranks, count, DType::kF32);
    expect_all_well(run_over_messages(ranks, {algorithm()}, [&](int rank, Communicator& c) {
      std::vector<float> values = values_of<float>(rank, count);
      c.all_reduce({}, bytes_of(values), count, DType::kF32, Reduction::kSum)->wait();
      EXPECT_EQ(values, expected[static_cast<std::size_t>(rank)]);
    }));
  });
}

constexpr Algorithm kOurs[] = {Algorithm::kRing, Algorithm::kRecursiveDoubling, Algorithm::kHierarchical};

class EachAlgorithm : public testing::TestWithParam<Algorithm> {};
INSTANTIATE_TEST_SUITE_P(Ours, EachAlgorithm, testing::ValuesIn(kOurs),
                         [](const auto& shape) { return name_of(shape.param); });

TEST_P(EachAlgorithm, WindowsAndSegmentsOfAllSizes) {
  for (const int window : {1, 2, 5}) {
    for (const std::int64_t segment : {8, 24, 4096}) {
      for (const int host_kind : {0, 2, 3}) {
        const Choice choice{GetParam(), host_kind, {.segment = {segment}, .window = window}};
        expect_all_well(run(5, choice, [&](int rank, Communicator& c) {
          std::vector<std::int64_t> values = values_of<std::int64_t>(rank, 217);
          c.all_reduce({}, bytes_of(values), 217, DType::kI64, Reduction::kSum)->wait();
          EXPECT_EQ(values, sum_in_order<std::int64_t>(5, 217));
        }));
      }
    }
  }
}

// Whatever is outstanding, and in whatever order it is waited for.
void many_at_once(int rank, Communicator& c) {
  constexpr int kOperations = 30;
  const int size = c.size();
  std::vector<std::vector<std::int64_t>> values;
  std::vector<std::unique_ptr<Request>> requests;
  for (int i = 0; i < kOperations; ++i) values.push_back(values_of<std::int64_t>(rank, 10 * i, i));
  for (int i = 0; i < kOperations; ++i) {
    std::byte* const data = bytes_of(values[static_cast<std::size_t>(i)]);
    switch (i % 5) {
      case 0:
        requests.push_back(c.broadcast({}, data, 10 * i, DType::kI64, i % size));
        break;
      case 1:
        if (rank == 0) requests.push_back(c.send({}, data, 10 * i, DType::kI64, size - 1));
        if (rank == size - 1) requests.push_back(c.receive({}, data, 10 * i, DType::kI64, 0));
        break;
      default:
        requests.push_back(c.all_reduce({}, data, 10 * i, DType::kI64, Reduction::kSum));
    }
    if (i % 7 == rank % 7) c.progress();
  }
  if (rank % 2 == 0) {
    while (!requests[requests.size() / 2]->done()) c.progress();
  }
  if (rank % 3 == 1) std::reverse(requests.begin(), requests.end());
  for (const auto& request : requests) request->wait();
  c.barrier();
  for (int i = 0; i < kOperations; ++i) {
    const auto& result = values[static_cast<std::size_t>(i)];
    if (i % 5 == 0) {
      EXPECT_EQ(result, values_of<std::int64_t>(i % size, 10 * i, i));
    } else if (i % 5 == 1) {
      EXPECT_EQ(result, values_of<std::int64_t>(rank == size - 1 ? 0 : rank, 10 * i, i));
    } else {
      EXPECT_EQ(result, sum_in_order<std::int64_t>(size, 10 * i, i));
    }
  }
}

TEST_P(EachAlgorithm, ManyOperationsAtOnce) {
  expect_all_well(run(4, {GetParam()}, many_at_once));
  expect_all_well(run_over_messages(4, {GetParam(), 2}, many_at_once));
}

TEST_P(EachAlgorithm, RequestsMayBeDestroyedAndOutliveTheirCommunicator) {
  ThreadWorld world(3, kDeadline);
  expect_all_well(run_ranks(3, [&](int rank) {
    auto c = make(world.make_communicator(everybody(3), rank), {GetParam()});
    std::vector<std::int64_t> first(500, rank), second(500, rank), third(500, rank);
    c->all_reduce({}, bytes_of(first), 500, DType::kI64, Reduction::kSum);
    EXPECT_EQ(first, std::vector<std::int64_t>(500, 3));
    const auto sum = c->all_reduce({}, bytes_of(second), 500, DType::kI64, Reduction::kSum);
    const auto behind = c->all_gather({}, bytes_of(third), 500, DType::kI64);
    c.reset();
    behind->wait();
    EXPECT_TRUE(sum->done());
    EXPECT_LE(sum->completed_at(), behind->completed_at());
    EXPECT_EQ(second, first);
    EXPECT_EQ(third[0], 0);
    EXPECT_EQ(third[499], 2);
  }));
}

TEST_P(EachAlgorithm, CompletionIsWhenTheDataHadMoved) {
  expect_all_well(run(2, {GetParam()}, [&](int, Communicator& c) {
    std::vector<float> values(10);
    const auto before = Clock::now();
    const auto request = c.all_reduce({}, bytes_of(values), 10, DType::kF32, Reduction::kSum);
    while (!request->done()) c.progress();
    const auto seen = Clock::now();
    EXPECT_GE(request->completed_at(), before);
    EXPECT_LE(request->completed_at(), seen);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    request->wait();
    EXPECT_LE(request->completed_at(), seen);
  }));
}

TEST_P(EachAlgorithm, AMissingRankEndsTheSumForGood) {
  const auto outcomes = run(
      3, {GetParam()},
      [&](int rank, Communicator& c) {
        std::vector<float> values(500), others(500);
        if (rank == 1) return;
        const auto second = [&] { return c.all_reduce({}, bytes_of(others), 500, DType::kF32, Reduction::kSum); };
        const auto request = c.all_reduce({}, bytes_of(values), 500, DType::kF32, Reduction::kSum);
        const auto behind = second();
        EXPECT_THROW(behind->wait(), Error);
        EXPECT_THROW(request->done(), Error);
        EXPECT_THROW(c.progress(), Error);
        EXPECT_THROW(c.barrier(), Error);
        EXPECT_THROW(c.all_gather({}, bytes_of(values), 500, DType::kF32), Error);
        second();
      },
      Seconds{0.3});
  for (const std::size_t rank : {0U, 2U}) {
    EXPECT_EQ(outcomes[rank].code, ExitCode::kHang);
    const std::string& message = outcomes[rank].message;
    EXPECT_NE(message.find("dead since all-reduce (sum) of 500 F32 over data (" +
                           std::string(reduce_algorithm_name(GetParam())) + "): comm: "),
              std::string::npos)
        << message;
    EXPECT_NE(message.find("waited 300.0 ms"), std::string::npos) << message;
  }
}

TEST_P(EachAlgorithm, AFailingMessageEndsTheSum) {
  ThreadWorld world(3, Seconds{0.3});
  const FaultPlan plan{.faults = {{"data", Operation::kSend, 3, FailFault{"link down"}}}};
  const auto outcomes = run_ranks(3, [&](int rank) {
    auto faulty = make_faulty_communicator(world.make_communicator(everybody(3), rank),
                                           std::make_shared<FaultState>(rank == 0 ? plan : FaultPlan{}));
    const auto c = make(std::move(faulty), {GetParam(), 0});
    std::vector<float> values(500);
    const auto request = c->all_reduce({}, bytes_of(values), 500, DType::kF32, Reduction::kSum);
    request->wait();
  });
  EXPECT_EQ(outcomes[0].code, ExitCode::kRankLost);
  EXPECT_NE(outcomes[0].message.find("all-reduce (sum) of 500 F32 over data ("), std::string::npos);
  EXPECT_NE(outcomes[0].message.find("injected: link down"), std::string::npos) << outcomes[0].message;
  for (const RankOutcome& outcome : outcomes) EXPECT_TRUE(outcome.failed);
}

TEST_P(EachAlgorithm, LargeBuffersInSegmentsOfTheDefaultLength) {
  constexpr std::int64_t kCount = (1 << 19) + 7;
  expect_all_well(run(3, {GetParam(), 2, {}}, [&](int rank, Communicator& c) {
    std::vector<std::int32_t> values(kCount);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::int32_t>(i) * (rank + 1);
    c.all_reduce({}, bytes_of(values), kCount, DType::kI32, Reduction::kSum)->wait();
    bool all = true;
    for (std::size_t i = 0; i < values.size(); ++i) all = all && values[i] == 6 * static_cast<std::int32_t>(i);
    EXPECT_TRUE(all);
  }));
}

TEST_P(EachAlgorithm, RanksThatDisagreeFindOut) {
  const auto outcomes = run(2, {GetParam(), 0}, [&](int rank, Communicator& c) {
    std::vector<double> values(10);
    c.all_reduce({}, bytes_of(values), rank == 0 ? 9 : 7, DType::kF64, Reduction::kSum)->wait();
  });
  for (const RankOutcome& outcome : outcomes) {
    EXPECT_EQ(outcome.code, ExitCode::kInternal);
    EXPECT_NE(outcome.message.find("disagree"), std::string::npos) << outcome.message;
  }
}

// Memory for 40 elements: each of their messages is as long as a slot.
TEST_P(EachAlgorithm, WorkInTheMemoryThatTheyWereGiven) {
  ThreadWorld world(3, kDeadline);
  const auto outcomes = run_ranks(3, [&](int rank) {
    const Bytes needed = staging_bytes(GetParam(), CollectiveKind::kAllReduce, 40, 4, 3, {});
    std::vector<std::byte> memory(static_cast<std::size_t>(needed.count) + 64, std::byte{0xA5});
    const auto c = make_algorithm_communicator(world.make_communicator(everybody(3), rank), GetParam(), hosts(3, 3),
                                               std::span(memory).first(memory.size() - 64));
    std::vector<std::int32_t> values(100, 0x01010101);
    c->all_reduce({}, bytes_of(values), 40, DType::kI32, Reduction::kSum)->wait();
    for (std::size_t i = memory.size() - 64; i < memory.size(); ++i) EXPECT_EQ(memory[i], std::byte{0xA5});
    c->all_reduce({}, bytes_of(values), 100, DType::kI32, Reduction::kSum)->wait();
  });
  for (const RankOutcome& outcome : outcomes) {
    EXPECT_NE(outcome.message.find("bytes, and the communicator was given"), std::string::npos) << outcome.message;
  }
}

TEST_P(EachAlgorithm, ImpossibleCallsAreRefused) {
  expect_all_well(run(2, {GetParam()}, [](int, Communicator& c) {
    std::byte data[8]{};
    EXPECT_THROW(c.all_reduce({}, data, -1, DType::kF32, Reduction::kSum), InternalError);
    EXPECT_THROW(c.all_reduce({}, data, 1, DType::kBF16, Reduction::kMax), InternalError);
    EXPECT_THROW(c.all_reduce({}, data, 1, DType::kI32, Reduction::kMax), InternalError);
    c.all_reduce({}, data, 1, DType::kF32, Reduction::kSum)->wait();  // nothing has happened
  }));
}

// Shares pass in the order that the page of the algorithms tells.
TEST(Algorithm, OrderOfSumsInARing) {
  expect_all_well(run(3, {Algorithm::kRing}, [](int rank, Communicator& c) {
    const std::vector<float> mine(3, rank == 0 ? 0x1p25F : rank == 1 ? 1.0F : 1.5F);
    std::vector<float> values = mine;
    c.all_reduce({}, bytes_of(values), 3, DType::kF32, Reduction::kSum)->wait();
    // Share 0: (x1 + x2) + x0. Share 1: (x2 + x0) + x1. Share 2: (x0 + x1) + x2.
    EXPECT_EQ(values, (std::vector<float>{(1.0F + 1.5F) + 0x1p25F, (1.5F + 0x1p25F) + 1.0F, (0x1p25F + 1.0F) + 1.5F}));
  }));
}

TEST(Algorithm, ImpossibleOptionsAreRefused) {
  ThreadWorld world(2, kDeadline);
  const auto make = [&](Algorithm algorithm, std::vector<int> host_of, const SegmentOptions& options) {
    return make_algorithm_communicator(world.make_communicator(everybody(2), 0), algorithm, std::move(host_of), {},
                                       options);
  };
  EXPECT_THROW(make(Algorithm::kRing, {}, {.segment = {12}}), InternalError);
  EXPECT_THROW(make(Algorithm::kRing, {}, {.segment = {0}}), InternalError);
  EXPECT_THROW(make(Algorithm::kRing, {}, {.window = 0}), InternalError);
  EXPECT_THROW(make(Algorithm::kHierarchical, {0}, {}), InternalError);
  EXPECT_NE(make(Algorithm::kRing, {}, {}), nullptr);
}

}  // namespace
}  // namespace trireme::comm
