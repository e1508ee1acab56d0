#include "engine/comm/meeting.h"

#include <chrono>
#include <thread>

#include <gtest/gtest.h>

#include "engine/comm/test_ranks.h"

namespace trireme::comm {
namespace {

void barriers_for_ever(Group& alone) {
  while (true) {
    alone.meet(0, Call{});
    alone.leave();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// A rank that has met may be slow, but its peers wait until it no longer reads their data; the world says so.
TEST(Meeting, ALateCopyEndsTheWorldButNotTheWait) {
  World world(2, Seconds{0.5});
  bool copied = false;
  const auto outcomes = run_ranks(2, [&](int rank) {
    const auto [group, index] = world.join({"data", {0, 1}}, rank);
    const Call call{.operation = Operation::kAllGather, .count = 5};
    group->meet(index, call);
    if (rank == 1) {  // copies until rank 0 has lost its patience
      const auto alone = world.join({"tensor", {1}}, 1).first;
      EXPECT_THROW(barriers_for_ever(*alone), Error);
      copied = true;
    }
    group->leave();
    EXPECT_TRUE(copied);
    group->meet(index, call);
  });
  for (const RankOutcome& outcome : outcomes) {
    EXPECT_EQ(outcome.code, ExitCode::kHang);
    EXPECT_EQ(outcome.message,
              "comm: all-gather of 5 F32 over data: the communicator is dead since copy over data: all ranks have met, "
              "but a copy has not ended after 500.0 ms");
  }
}

TEST(Meeting, TextOfACall) {
  EXPECT_EQ(Call{}.text(), "barrier");
  EXPECT_EQ((Call{.operation = Operation::kSend, .count = 2, .dtype = DType::kBF16}.text()), "send of 2 BF16");
  EXPECT_EQ((Call{.operation = Operation::kReduceScatter, .count = 3}.text()), "reduce-scatter of 3 F32");
}

}  // namespace
}  // namespace trireme::comm
