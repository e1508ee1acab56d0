#include "engine/kernels/cpu/team.h"

#include <atomic>
#include <chrono>
#include <numeric>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/thread_clock.h"
#include "engine/kernels/cpu/rows.h"

namespace trireme::kernels::cpu {
namespace {

TEST(Team, EachMemberIsAThreadAndTheFirstIsTheCaller) {
  for (const int size : {1, 2, 3, 5}) {
    Team team(size);
    EXPECT_EQ(team.size(), size);
    std::vector<std::thread::id> threads(static_cast<std::size_t>(size));
    for (int round = 0; round < 3; ++round) {
      team.each([&](int member) { threads[static_cast<std::size_t>(member)] = std::this_thread::get_id(); });
      EXPECT_EQ(threads[0], std::this_thread::get_id());
      EXPECT_EQ(std::set(threads.begin(), threads.end()).size(), threads.size());
    }
  }
}

TEST(Team, ALoopIsCutInOrderAndEveryIndexIsDoneOnce) {
  for (const int size : {1, 2, 3, 7}) {
    Team team(size);
    for (const std::int64_t count : {0, 1, 2, 5, 6, 7, 8, 100}) {
      std::vector<int> done_by(static_cast<std::size_t>(count), -1);
      parallel_members(team, count, [&](std::int64_t i, int member) {
        EXPECT_EQ(done_by[static_cast<std::size_t>(i)], -1);
        done_by[static_cast<std::size_t>(i)] = member;
      });
      EXPECT_TRUE(std::is_sorted(done_by.begin(), done_by.end()));
      if (count > 0) {
        EXPECT_EQ(done_by.front(), 0);
      }
      for (int member = 0; count > 1 && member < size; ++member) {  // shares differ by one at the most
        const auto share = std::count(done_by.begin(), done_by.end(), member);
        EXPECT_THAT(share, testing::AllOf(testing::Ge(count / size), testing::Le(count / size + 1)));
      }
    }
  }
}

// One round's results are whole when the next begins, however soon that is.
TEST(Team, ManyShortRounds) {
  Team team(3);
  std::vector<std::int64_t> sums(3);
  constexpr std::int64_t kRounds = 3000;
  for (std::int64_t round = 0; round < kRounds; ++round) {
    team.each([&](int member) { sums[static_cast<std::size_t>(member)] += round; });
    EXPECT_EQ(std::accumulate(sums.begin(), sums.end(), std::int64_t{0}), 3 * round * (round + 1) / 2);
  }
}

TEST(Team, WhatAMemberThrowsReachesTheCallerAndTheTeamGoesOn) {
  Team team(3);
  for (const int thrower : {0, 1, 2}) {
    std::atomic<int> finished = 0;
    EXPECT_THROW(team.each([&](int member) {
      if (member == thrower) throw std::runtime_error("no");
      ++finished;
    }),
                 std::runtime_error);
    EXPECT_EQ(finished, 2);
  }
  std::atomic<int> members = 0;
  team.each([&](int) { ++members; });
  EXPECT_EQ(members, 3);
}

TEST(Team, AnIdleOneComputesNothing) {
  Team team(2);
  std::atomic<double> before = 0, after = 0;
  const auto look = [&](std::atomic<double>& time) {
    team.each([&](int member) {
      if (member == 1) time = thread_cpu_time().count;
    });
  };
  look(before);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  look(after);
  EXPECT_LT(after - before, 0.1);
}

}  // namespace
}  // namespace trireme::kernels::cpu
