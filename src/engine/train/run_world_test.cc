#include "engine/train/run_world.h"

#include <atomic>

#include <gtest/gtest.h>

#include "base/error.h"

namespace trireme::train {
namespace {

TEST(RunWorld, EveryRankRunsAndTheFirstErrorComesBack) {
  const std::unique_ptr<RunWorld> world = make_thread_run_world(3, Seconds{5});
  EXPECT_EQ(world->own_ranks(), (std::vector<int>{0, 1, 2}));
  EXPECT_TRUE(world->leads());
  EXPECT_EQ(world->backend(), plan::Backend::kThreads);
  EXPECT_THROW(world->factory(0)({"all", {0, 1, 2}}, {.library_sums = true}), InternalError);
  std::atomic<int> ran = 0;
  run_ranks(*world, [&](int rank) { ran += 1 + rank; });
  EXPECT_EQ(ran, 6);
  try {
    run_ranks(*world, [&](int rank) {
      const std::unique_ptr<comm::Communicator> all = world->factory(rank)({"all", {0, 1, 2}}, {});
      if (rank == 1) throw Error(ExitCode::kDiverged, "test", "step", "wild");
      all->barrier();
    });
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kDiverged);  // the cause, not what it did to the others
  }
}

}  // namespace
}  // namespace trireme::train
