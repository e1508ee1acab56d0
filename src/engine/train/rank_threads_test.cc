#include "engine/train/rank_threads.h"

#include <atomic>

#include <gtest/gtest.h>

#include "base/error.h"

namespace trireme::train {
namespace {

TEST(RankThreads, EveryRankRunsAndTheFirstErrorComesBack) {
  comm::ThreadWorld world(3, Seconds{5});
  std::atomic<int> ran = 0;
  run_rank_threads(3, world, [&](int rank) { ran += 1 + rank; });
  EXPECT_EQ(ran, 6);
  EXPECT_THROW(run_rank_threads(3, world,
                                [](int rank) {
                                  if (rank == 1) throw Error(ExitCode::kDiverged, "test", "step", "wild");
                                }),
               Error);
}

TEST(RoundGate, TheOthersFollowTheLeaderToTheEnd) {
  comm::ThreadWorld world(4, Seconds{5});
  RoundGate gate(Seconds{5});
  std::atomic<int> rounds = 0;
  run_rank_threads(4, world, [&](int rank) {
    if (rank > 0) {
      for (std::int64_t round = 1; gate.await(round); ++round) ++rounds;
      return;
    }
    for (std::int64_t round = 1; round <= 5; ++round) {
      gate.announce(round);
      gate.await_others(3);
    }
    gate.end();
  });
  EXPECT_EQ(rounds, 15);
}

TEST(RoundGate, ALeaderThatNeverComesIsAHangAndAFailedRankIsLost) {
  RoundGate silent(Seconds{0.05});
  try {
    silent.await(1);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kHang);
  }
  RoundGate broken(Seconds{5});
  broken.give_up();
  try {
    broken.await(1);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kRankLost);
  }
}

}  // namespace
}  // namespace trireme::train
