#include "engine/comm/message_world.h"

#include <atomic>
#include <mutex>

#include <gtest/gtest.h>

#include "base/random.h"
#include "engine/comm/test_ranks.h"
#include "engine/comm/test_transport.h"
#include "engine/comm/threads.h"

namespace trireme::comm {
namespace {

template <class T>
std::vector<T> values_of(int rank, std::int64_t count, int salt = 0) {
  std::vector<T> values(static_cast<std::size_t>(count));
  const RandomKey key{2, static_cast<std::uint64_t>(rank + 100 * salt)};
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<T>(1000 * random_normal(key, i));
  return values;
}

using Body = std::function<void(int, const std::shared_ptr<MessageWorld>&)>;

// With memory for reductions of any length.
std::unique_ptr<Communicator> make(const std::shared_ptr<MessageWorld>& world, const GroupName& name) {
  const auto& options = world->options();
  return MessageWorld::make_communicator(
      world, name,
      test_memory(message_staging_bytes(1 << 20, 8, static_cast<int>(name.ranks.size()), options.segments,
                                        options.staged_operations)));
}

std::vector<RankOutcome> run_messages(int ranks, const MessageOptions& options, const Body& body) {
  TestNetwork network(ranks);
  return run_ranks(ranks, [&](int rank) {
    const auto transport = std::make_shared<TestTransport>(network, rank);
    body(rank, std::make_shared<MessageWorld>(transport, posix_env(), options));
  });
}

void expect_all_well(const std::vector<RankOutcome>& outcomes) {
  for (const RankOutcome& outcome : outcomes) EXPECT_FALSE(outcome.failed) << outcome.message;
}

// Segments of 128 bytes: all but the smallest buffers take several.
const MessageOptions kOptions{
    .deadline = {20}, .segments = {.segment = {128}, .window = 3}, .direct_window = 5, .staged_operations = 2};
const MessageOptions kImpatient{
    .deadline = {0.3}, .segments = {.segment = {128}, .window = 3}, .direct_window = 5, .staged_operations = 2};

// All collectives with one element type, on buffers that each round fills anew.
template <class T>
std::vector<std::vector<T>> results_of(Communicator& c, std::int64_t count, DType dtype) {
  std::vector<std::vector<T>> results;
  const auto add = [&](const auto& start) {
    results.push_back(values_of<T>(c.index(), count, static_cast<int>(results.size())));
    start(bytes_of(results.back()))->wait();
  };
  add([&](std::byte* data) { return c.all_reduce({}, data, count, dtype, Reduction::kSum); });
  if (dtype == DType::kF32 || dtype == DType::kF64) {
    add([&](std::byte* data) { return c.all_reduce({}, data, count, dtype, Reduction::kMax); });
  }
  add([&](std::byte* data) { return c.reduce_scatter({}, data, count, dtype); });
  add([&](std::byte* data) { return c.all_gather({}, data, count, dtype); });
  for (int root = 0; root < c.size(); ++root) {
    add([&](std::byte* data) { return c.broadcast({}, data, count, dtype, root); });
  }
  c.barrier();
  return results;
}

template <class T>
void expect_the_bits_of_threads(int ranks, std::int64_t count, DType dtype) {
  SCOPED_TRACE(fmt::format("{} {} over {} ranks", count, dtype_name(dtype), ranks));
  std::vector<std::vector<std::vector<T>>> expected(static_cast<std::size_t>(ranks));
  ThreadWorld threads(ranks, Seconds{20});
  expect_all_well(run_ranks(ranks, [&](int rank) {
    const auto c = threads.make_communicator(everybody(ranks), rank);
    expected[static_cast<std::size_t>(rank)] = results_of<T>(*c, count, dtype);
  }));
  expect_all_well(run_messages(ranks, kOptions, [&](int rank, const auto& world) {
    const auto c = make(world, everybody(ranks));
    EXPECT_EQ(c->index(), rank);
    EXPECT_EQ(c->size(), ranks);
    EXPECT_EQ(results_of<T>(*c, count, dtype), expected[static_cast<std::size_t>(rank)]);
    world->close();
  }));
}

TEST(MessageCollectives, HaveTheBitsOfThreads) {
  for (const int ranks : {1, 2, 3, 5}) {
    for (const std::int64_t count : {0, 1, 5, 33, 3001}) {
      expect_the_bits_of_threads<float>(ranks, count, DType::kF32);
      expect_the_bits_of_threads<double>(ranks, count, DType::kF64);
      expect_the_bits_of_threads<std::int32_t>(ranks, count, DType::kI32);
      expect_the_bits_of_threads<std::int64_t>(ranks, count, DType::kI64);
    }
  }
}

// How far into each part of its memory a communicator has written, where `operations` run at once on buffers of which
// each byte is 1.
std::vector<std::int64_t> touched(const MessageOptions& options, int ranks, std::int64_t count, int operations) {
  const Bytes needed = message_staging_bytes(count, 4, ranks, options.segments, options.staged_operations);
  const auto parts = static_cast<std::size_t>(options.staged_operations);
  std::vector<std::int64_t> most(parts);
  std::mutex mutex;
  expect_all_well(run_messages(ranks, options, [&](int, const auto& world) {
    std::vector<std::byte> memory(static_cast<std::size_t>(needed.count) + 64, std::byte{0xA5});
    const auto c =
        MessageWorld::make_communicator(world, everybody(ranks), std::span(memory).first(memory.size() - 64));
    std::vector<std::vector<std::int32_t>> values;
    std::vector<std::unique_ptr<Request>> requests;
    for (int i = 0; i < operations; ++i) values.emplace_back(static_cast<std::size_t>(count), 0x01010101);
    for (auto& one : values) {
      requests.push_back(c->all_reduce({}, bytes_of(one), count, DType::kI32, Reduction::kSum));
    }
    for (const auto& request : requests) request->wait();
    world->close();
    for (std::size_t i = memory.size() - 64; i < memory.size(); ++i) EXPECT_EQ(memory[i], std::byte{0xA5});
    const std::size_t part = static_cast<std::size_t>(needed.count) / parts;
    const std::lock_guard lock(mutex);
    for (std::size_t i = 0; i < part * parts; ++i) {
      if (memory[i] == std::byte{0xA5}) continue;
      const std::size_t number = part == 0 ? 0 : i / part;
      most[number] = std::max(most[number], static_cast<std::int64_t>(i % part) + 1);
    }
  }));
  return most;
}

TEST(MessageStaging, IsWhatTheFormulaSaysToTheByte) {
  for (const int ranks : {1, 2, 3, 5}) {
    for (const std::int64_t count : {0, 1, 7, 64, 1000}) {
      SCOPED_TRACE(fmt::format("{} elements over {} ranks", count, ranks));
      for (const std::int64_t end : touched(kOptions, ranks, count, 6)) {
        const Bytes part = message_staging_bytes(count, 4, ranks, kOptions.segments, 1);
        EXPECT_EQ(allocation_size(Bytes{end}), part);
      }
    }
  }
}

TEST(MessageStaging, AReductionThatNeedsMoreThanWasGivenIsRefused) {
  const auto outcomes = run_messages(2, kOptions, [&](int, const auto& world) {
    const Bytes needed = message_staging_bytes(64, 4, 2, kOptions.segments, kOptions.staged_operations);
    const auto c = MessageWorld::make_communicator(world, everybody(2), test_memory(needed));
    const auto none = MessageWorld::make_communicator(world, everybody(2));
    std::vector<float> values(100);
    c->all_reduce({}, bytes_of(values), 64, DType::kF32, Reduction::kSum)->wait();
    none->all_gather({}, bytes_of(values), 100, DType::kF32)->wait();  // stages nothing
    EXPECT_THROW(none->all_reduce({}, bytes_of(values), 2, DType::kF32, Reduction::kSum), InternalError);
    c->all_reduce({}, bytes_of(values), 100, DType::kF32, Reduction::kSum)->wait();
  });
  for (const RankOutcome& outcome : outcomes) {
    EXPECT_NE(outcome.message.find("a reduction stages 256 bytes, and the communicator was given 2 x 128"),
              std::string::npos)
        << outcome.message;
  }
}

TEST(MessageWorld, ManyOperationsRunAtOnce) {
  constexpr int kOperations = 150;  // more than there are slots
  expect_all_well(run_messages(3, kOptions, [&](int rank, const auto& world) {
    const auto data = make(world, everybody(3));
    const auto tensor = make(world, {"tensor", {2, 0, 1}});
    std::vector<std::vector<std::int64_t>> values;
    std::vector<std::unique_ptr<Request>> requests;
    for (int i = 0; i < kOperations; ++i) values.emplace_back(100, rank + i);
    for (int i = 0; i < kOperations; ++i) {
      auto& communicator = i % 2 == 0 ? *data : *tensor;
      requests.push_back(communicator.all_reduce({}, bytes_of(values[static_cast<std::size_t>(i)]), 100, DType::kI64,
                                                 Reduction::kSum));
    }
    // Each rank waits in an order of its own.
    for (int i = 0; i < kOperations; ++i) {
      requests[static_cast<std::size_t>((i * 7 + rank * 31) % kOperations)]->wait();
    }
    for (int i = 0; i < kOperations; ++i) {
      EXPECT_EQ(values[static_cast<std::size_t>(i)], std::vector<std::int64_t>(100, 3 + 3 * i));
    }
    world->close();
  }));
}

TEST(MessageWorld, SumsFollowTheOrderOfTheGroup) {
  expect_all_well(run_messages(3, kOptions, [&](int rank, const auto& world) {
    const auto communicator = make(world, {"data", {2, 0, 1}});
    std::vector<float> values{rank == 2 ? 0x1p25F : 1.0F};
    communicator->all_reduce({}, bytes_of(values), 1, DType::kF32, Reduction::kSum)->wait();
    EXPECT_EQ(values[0], 0x1p25F);  // the large one first: the ones are lost
  }));
}

TEST(MessageWorld, MessagesArriveInOrderAndBothMaySendFirst) {
  expect_all_well(run_messages(2, kOptions, [&](int rank, const auto& world) {
    const auto c = make(world, everybody(2, "pipeline"));
    constexpr std::int64_t kElements = 77;
    std::vector<std::vector<double>> sent;
    std::vector<std::vector<double>> received(100, std::vector<double>(kElements));
    std::vector<std::unique_ptr<Request>> requests;
    for (int i = 0; i < 100; ++i) sent.push_back(values_of<double>(rank, kElements, i));
    for (auto& values : sent) requests.push_back(c->send({}, bytes_of(values), kElements, DType::kF64, 1 - rank));
    for (auto& values : received)
      requests.push_back(c->receive({}, bytes_of(values), kElements, DType::kF64, 1 - rank));
    while (!requests.front()->done()) c->progress();
    for (const auto& request : requests) request->wait();
    for (int i = 0; i < 100; ++i) {
      EXPECT_EQ(received[static_cast<std::size_t>(i)], values_of<double>(1 - rank, kElements, i));
    }
    if (rank == 0) c->send({}, nullptr, 0, DType::kF64, 1)->wait();
    if (rank == 1) c->receive({}, nullptr, 0, DType::kF64, 0)->wait();
    world->close();
  }));
}

TEST(MessageWorld, ARankThatWaitsElsewhereServesItsPeers) {
  expect_all_well(run_messages(2, kOptions, [&](int rank, const auto& world) {
    const auto a = make(world, everybody(2, "data"));
    const auto b = make(world, everybody(2, "tensor"));
    std::vector<float> values(1000, 1.0F);
    const auto request = b->all_reduce({}, bytes_of(values), 1000, DType::kF32, Reduction::kSum);
    if (rank == 1) request->wait();
    a->barrier();
    request->wait();
    EXPECT_EQ(values[999], 2.0F);
  }));
}

TEST(MessageDeadline, AMissingRankIsNamedByAllThatWait) {
  const auto outcomes = run_messages(3, kImpatient, [&](int rank, const auto& world) {
    const auto c = make(world, everybody(3));
    std::vector<float> values(5);
    if (rank != 1) c->all_reduce({}, bytes_of(values), 5, DType::kF32, Reduction::kSum)->wait();
  });
  EXPECT_FALSE(outcomes[1].failed);
  for (const std::size_t rank : {0U, 2U}) {
    EXPECT_EQ(outcomes[rank].code, ExitCode::kHang);
    EXPECT_EQ(outcomes[rank].message,
              "comm: all-reduce (sum) of 5 F32 over data: waited 300.0 ms; ranks arrived: 0, 2; missing: 1");
  }
}

TEST(MessageDeadline, MayBeChanged) {
  const auto outcomes = run_messages(2, kOptions, [&](int rank, const auto& world) {
    EXPECT_THROW(world->set_deadline(Seconds{0}), InternalError);
    const auto c = make(world, everybody(2));
    c->barrier();
    if (rank == 1) return;
    world->set_deadline(Seconds{0.01});
    c->barrier();
  });
  EXPECT_EQ(outcomes[0].message, "comm: barrier over data: waited 10.0 ms; ranks arrived: 0; missing: 1");
}

TEST(MessageDeadline, TheWorldIsDeadAfterwardsAndSaysWhy) {
  const auto outcomes = run_messages(2, kImpatient, [&](int rank, const auto& world) {
    const auto c = make(world, everybody(2));
    std::vector<float> values(5);
    if (rank == 0) {
      EXPECT_THROW(c->barrier(), Error);
    } else {
      EXPECT_THROW(while (true) c->progress(), Error);  // is told
    }
    EXPECT_TRUE(world->dead());
    EXPECT_THROW(c->progress(), Error);
    EXPECT_THROW(world->close(), Error);
    EXPECT_THROW(make(world, everybody(2)), Error);
    c->send({}, bytes_of(values), 5, DType::kF32, 1 - rank);
  });
  for (const RankOutcome& outcome : outcomes) {
    EXPECT_EQ(outcome.code, ExitCode::kHang);
    EXPECT_EQ(outcome.message,
              "comm: send of 5 F32 over data: the communicator is dead since barrier over data: waited 300.0 ms; ranks "
              "arrived: 0; missing: 1");
  }
}

TEST(MessageDeadline, OfMessages) {
  for (const bool sends : {false, true}) {
    const auto outcomes = run_messages(2, kImpatient, [&](int rank, const auto& world) {
      const auto c = make(world, everybody(2, "pipeline"));
      std::vector<float> values(100);
      if (rank == 0) return;
      const auto request = sends ? c->send({}, bytes_of(values), 100, DType::kF32, 0)
                                 : c->receive({}, bytes_of(values), 100, DType::kF32, 0);
      EXPECT_FALSE(request->done());
      EXPECT_THROW(request->wait(), Error);
      request->done();
    });
    EXPECT_EQ(outcomes[1].code, ExitCode::kHang);
    const std::string end =
        sends ? "rank 1 waited 300.0 ms for the receive of rank 0" : "rank 1 waited 300.0 ms for the send of rank 0";
    EXPECT_NE(outcomes[1].message.find("the communicator is dead since"), std::string::npos) << outcomes[1].message;
    EXPECT_TRUE(outcomes[1].message.ends_with(end)) << outcomes[1].message;
  }
}

// Data that stop after all have arrived.
TEST(MessageDeadline, ARankThatStopsInTheMiddle) {
  std::atomic<bool> given_up = false;
  const auto outcomes = run_messages(2, kImpatient, [&](int rank, const auto& world) {
    const auto c = make(world, everybody(2));
    std::vector<double> values(3000);
    const auto request = c->all_gather({}, bytes_of(values), 3000, DType::kF64);
    if (rank == 0) {
      try {
        request->wait();
      } catch (const Error&) {
        given_up = true;
        throw;
      }
    } else {
      c->progress();
      while (!given_up) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      while (true) c->progress();  // until it is told
    }
  });
  EXPECT_EQ(outcomes[0].code, ExitCode::kHang);
  EXPECT_NE(outcomes[0].message.find("all ranks have called it, but no data have moved for 300.0 ms"),
            std::string::npos)
      << outcomes[0].message;
  EXPECT_EQ(outcomes[1].message, outcomes[0].message);
}

TEST(MessageDisagreement, NamesBothCalls) {
  const auto expect_refused = [&](const auto& call_0, const auto& call_1, const std::string& text_0,
                                  const std::string& text_1) {
    const auto outcomes = run_messages(2, kOptions, [&](int rank, const auto& world) {
      const auto c = make(world, everybody(2));
      std::vector<double> values(6);
      const auto request = rank == 0 ? call_0(*c, bytes_of(values)) : call_1(*c, bytes_of(values));
      request->wait();
      c->barrier();
    });
    for (const RankOutcome& outcome : outcomes) {
      EXPECT_EQ(outcome.code, ExitCode::kInternal);
      EXPECT_NE(outcome.message.find(fmt::format("rank 0 calls {}, rank 1 calls {}", text_0, text_1)),
                std::string::npos)
          << outcome.message;
    }
  };
  const auto sum = [](std::int64_t count) {
    return
        [=](Communicator& c, std::byte* data) { return c.all_reduce({}, data, count, DType::kF32, Reduction::kSum); };
  };
  const auto gather = [](Communicator& c, std::byte* data) { return c.all_gather({}, data, 5, DType::kF32); };
  expect_refused(sum(5), sum(6), "all-reduce (sum) of 5 F32", "all-reduce (sum) of 6 F32");
  expect_refused(sum(5), gather, "all-reduce (sum) of 5 F32", "all-gather of 5 F32");
  expect_refused([](Communicator& c, std::byte* data) { return c.send({}, data, 5, DType::kF32, 1); },
                 [](Communicator& c, std::byte* data) { return c.receive({}, data, 6, DType::kF32, 0); },
                 "send of 5 F32", "receive of 6 F32");
}

TEST(MessageDisagreement, GroupsMadeInDifferentOrders) {
  const auto outcomes = run_messages(2, kOptions, [&](int rank, const auto& world) {
    const auto first = make(world, everybody(2, rank == 0 ? "data" : "tensor"));
    first->barrier();
  });
  for (const RankOutcome& outcome : outcomes) {
    EXPECT_EQ(outcome.code, ExitCode::kInternal);
    EXPECT_NE(outcome.message.find("has another group in this place"), std::string::npos) << outcome.message;
  }
}

TEST(MessageWorld, ALostRankEndsTheWaitOfTheOthers) {
  const auto outcomes = run_messages(3, kOptions, [&](int rank, const auto& world) {
    const auto c = make(world, everybody(3));
    if (rank == 2) {
      world->report_lost("NaN in the loss");
      world->report_lost("a second report changes nothing");
    } else {
      c->barrier();
    }
  });
  EXPECT_FALSE(outcomes[2].failed);
  for (const std::size_t rank : {0U, 1U}) {
    EXPECT_EQ(outcomes[rank].code, ExitCode::kRankLost);
    EXPECT_EQ(outcomes[rank].message, "comm: wait: rank 2 was lost: NaN in the loss");
  }
}

TEST(MessageWorld, AFailingTransportIsNamed) {
  for (const int sends : {0, 1, 4}) {
    TestNetwork network(2);
    const auto outcomes = run_ranks(2, [&](int rank) {
      const auto transport = std::make_shared<TestTransport>(network, rank);
      if (rank == 0) transport->sends_left = sends;
      const auto world = std::make_shared<MessageWorld>(transport, posix_env(), kImpatient);
      const auto c = make(world, everybody(2));
      std::vector<double> values(200);
      c->all_reduce({}, bytes_of(values), 200, DType::kF64, Reduction::kSum)->wait();
    });
    EXPECT_EQ(outcomes[0].code, ExitCode::kRankLost);
    EXPECT_EQ(outcomes[0].message, "comm: all-reduce (sum) of 200 F64 over data: rank 0: send to rank 1: no route");
    EXPECT_EQ(outcomes[1].code, ExitCode::kHang);  // it cannot be told
  }
}

TEST(MessageWorld, NamesAreChecked) {
  TestNetwork network(2);
  const auto transport = std::make_shared<TestTransport>(network, 0, 500);
  EXPECT_THROW(MessageWorld(transport, posix_env(), {.deadline = {0}}), InternalError);
  EXPECT_THROW(MessageWorld(transport, posix_env(), {.segments = {.segment = {12}}}), InternalError);
  EXPECT_THROW(MessageWorld(transport, posix_env(), {.segments = {.window = 0}}), InternalError);
  EXPECT_THROW(MessageWorld(transport, posix_env(), {.direct_window = 0}), InternalError);
  EXPECT_THROW(MessageWorld(transport, posix_env(), {.staged_operations = 0}), InternalError);
  const auto world = std::make_shared<MessageWorld>(transport, posix_env(), kImpatient);
  const auto make = [&](std::vector<int> ranks) {
    return MessageWorld::make_communicator(world, {"data", std::move(ranks)});
  };
  EXPECT_THROW(make({1}), InternalError);
  EXPECT_THROW(make({0, 2}), InternalError);
  EXPECT_THROW(make({0, 0}), InternalError);
  const auto alone = make({0});
  std::byte data[8]{};
  EXPECT_THROW(alone->send({}, data, 1, DType::kF32, 0), InternalError);
  EXPECT_THROW(alone->broadcast({}, data, 1, DType::kF32, 1), InternalError);
  EXPECT_THROW(alone->all_gather({}, data, -1, DType::kF32), InternalError);
  EXPECT_THROW(alone->all_reduce({}, data, 1, DType::kBF16, Reduction::kMax), InternalError);
  alone->barrier();
  make({0, 1});
  const auto beyond = make({0, 1});  // the second: its tags begin at 257
  const auto far_beyond = make({0, 1});
  EXPECT_THROW(far_beyond->send({}, data, 1, DType::kF32, 1), InternalError);
}

}  // namespace
}  // namespace trireme::comm
