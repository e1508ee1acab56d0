#include "engine/comm/thread_group.h"

#include <atomic>
#include <chrono>
#include <optional>
#include <thread>

#include <gtest/gtest.h>

#include "engine/comm/test_ranks.h"

namespace trireme::comm {
namespace {

constexpr std::int64_t kCount = 100'000;  // some segments

Call all_gather_of(std::vector<float>& values) {
  return {.operation = Operation::kAllGather, .count = kCount, .data = bytes_of(values)};
}

// Claims all segments of the group but one, and does them.
void leave_one_segment(Group& group, std::optional<Claim>& last) {
  while (std::optional<Claim> next = group.claim()) {
    if (last) group.finish(*last);
    last = std::move(next);
  }
}

void barriers_until_death(Group& alone) {
  while (true) {
    alone.wait(alone.post_collective(0, Call{}));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// A rank may be slow to do a segment, but its peers wait until it no longer reads their data; the world says so.
TEST(ThreadGroup, ALateCopyEndsTheWorldButNotTheWait) {
  World world(2, Seconds{0.5});
  bool copied = false;
  std::atomic<bool> claimed = false;
  const auto outcomes = run_ranks(2, [&](int rank) {
    const auto [group, index] = world.join({"data", {0, 1}}, rank);
    std::vector<float> values(kCount);
    const Post post = group->post_collective(index, all_gather_of(values));
    if (rank == 1) {
      std::optional<Claim> last;
      while (!last) leave_one_segment(*group, last);
      claimed = true;
      EXPECT_THROW(barriers_until_death(*world.join({"tensor", {1}}, 1).first), Error);  // rank 0 has lost its patience
      copied = true;
      group->finish(*last);
    } else {
      while (!claimed) std::this_thread::yield();
    }
    group->wait(post);
    EXPECT_TRUE(copied);
    group->post_collective(index, all_gather_of(values));
  });
  for (const RankOutcome& outcome : outcomes) {
    EXPECT_EQ(outcome.code, ExitCode::kHang);
    EXPECT_EQ(outcome.message,
              "comm: all-gather of 100000 F32 over data: the communicator is dead since copy over data: all ranks have "
              "met, but a copy has not ended after 500.0 ms");
  }
}

TEST(ThreadGroup, AWaitThatTheDeathEndsLastsUntilNobodyTouchesItsData) {
  World world(2, Seconds{60});
  const auto group = world.join({"data", {0, 1}}, 0).first;
  world.join({"data", {0, 1}}, 1);
  std::vector<float> values[] = {std::vector<float>(kCount), std::vector<float>(kCount)};
  const Post post = group->post_collective(0, all_gather_of(values[0]));
  group->post_collective(1, all_gather_of(values[1]));
  const std::optional<Claim> first = group->claim();
  const std::optional<Claim> second = group->claim();
  ASSERT_TRUE(first && second);
  world.report_lost(1, "NaN in the loss");
  EXPECT_FALSE(group->claim());
  EXPECT_THROW(group->progress(), Error);
  EXPECT_THROW(group->done(post), Error);

  std::atomic<bool> finished = false;
  std::thread peer([&] {
    group->finish(*first);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    finished = true;
    group->finish(*second);
  });
  EXPECT_THROW(group->wait(post), Error);
  EXPECT_TRUE(finished);
  peer.join();
  EXPECT_EQ(post.exchange->claimed, 2);
}

TEST(ThreadGroup, TheOldestIsMovedFirst) {
  World world(2, Seconds{60});
  const auto group = world.join({"data", {0, 1}}, 0).first;
  world.join({"data", {0, 1}}, 1);
  std::vector<float> values(kCount);
  const Call call = all_gather_of(values);
  const Post early = group->post_collective(0, call);
  const Post late = group->post_collective(0, call);
  EXPECT_FALSE(group->claim());
  std::vector<float> others(2 * kCount);
  for (int i = 0; i < 2; ++i) {
    Call theirs = call;
    theirs.data = bytes_of(others) + i * kCount * 4;
    group->post_collective(1, theirs);
  }
  const auto next = group->claim();
  ASSERT_TRUE(next);
  EXPECT_EQ(next->exchange, early.exchange);
  while (!early.exchange->complete()) {
    if (const auto claim = group->claim()) group->finish(*claim);
    if (early.exchange->finished == early.exchange->segments - 1) group->finish(*next);
  }
  EXPECT_LT(late.exchange->finished, late.exchange->segments);
  EXPECT_TRUE(group->done(late));
  EXPECT_GE(group->completed_at(late), group->completed_at(early));
}

TEST(ThreadGroup, TextOfACall) {
  EXPECT_EQ(Call{}.text(), "barrier");
  EXPECT_EQ((Call{.operation = Operation::kSend, .count = 2, .dtype = DType::kBF16}.text()), "send of 2 BF16");
  EXPECT_EQ((Call{.operation = Operation::kReduceScatter, .count = 3}.text()), "reduce-scatter of 3 F32");
}

}  // namespace
}  // namespace trireme::comm
