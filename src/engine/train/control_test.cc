#include "engine/train/control.h"

#include <cmath>

#include <gtest/gtest.h>

#include "base/error.h"
#include "engine/train/run_world.h"

namespace trireme::train {
namespace {

TEST(Control, TheLeadersWordAndEverybodysTextsArrive) {
  for (int ranks : {1, 2, 5}) {
    const std::unique_ptr<RunWorld> world = make_thread_run_world(ranks, Seconds{5});
    run_ranks(*world, [&](int rank) {
      Control control(rank, ranks, world->factory(rank));
      EXPECT_EQ(control.leads(), rank == 0);
      for (std::int64_t word : {std::int64_t{7}, std::int64_t{-1}}) {
        EXPECT_EQ(control.decide(rank == 0 ? word : 99), word);
      }
      std::vector<std::string> expected;
      for (int i = 0; i < ranks; ++i) expected.push_back(std::string(static_cast<std::size_t>(i), 'x') + "\"\n");
      EXPECT_EQ(control.gather(expected[static_cast<std::size_t>(rank)]),
                rank == 0 ? expected : std::vector<std::string>{});
      EXPECT_EQ(control.share(expected[static_cast<std::size_t>(rank)]), expected);
    });
  }
}

TEST(Control, ClocksOfOtherHostsAreEstimated) {
  const std::vector<std::string> hosts{"a", "b", "a", "b", "c"};
  const std::unique_ptr<RunWorld> world = make_thread_run_world(5, Seconds{5});
  run_ranks(*world, [&](int rank) {
    Control control(rank, 5, world->factory(rank));
    const std::vector<telemetry::ClockOffset> clocks = control.clocks(hosts);
    ASSERT_EQ(clocks.size(), rank == 0 ? hosts.size() : 0);
    if (rank != 0) return;
    for (std::size_t i = 0; i < hosts.size(); ++i) {
      EXPECT_EQ(clocks[i].estimated, hosts[i] != "a");
      // In truth all read one clock: the estimate is within its own bound.
      EXPECT_LE(std::abs(clocks[i].offset.count), clocks[i].round_trip.count / 2 + 1e-9);
    }
    EXPECT_EQ(clocks[1].offset, clocks[3].offset);
  });
}

TEST(Control, ALeaderThatNeverDecidesIsAHang) {
  const std::unique_ptr<RunWorld> world = make_thread_run_world(2, Seconds{0.05});
  try {
    run_ranks(*world, [&](int rank) {
      Control control(rank, 2, world->factory(rank));
      if (rank == 1) control.decide(0);
    });
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kHang);
    EXPECT_NE(std::string(error.what()).find("missing: 0"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace trireme::train
