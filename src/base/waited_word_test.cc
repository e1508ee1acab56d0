#include "base/waited_word.h"

#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/thread_clock.h"

namespace trireme {
namespace {

using std::chrono::milliseconds;

TEST(WaitedWord, AChangedOneIsNotWaitedFor) {
  WaitedWord word(3);
  word.wait_while(2, 0);
  EXPECT_EQ(word.value(), 3u);
}

TEST(WaitedWord, AddingTellsWhatItWas) {
  WaitedWord word(3);
  EXPECT_EQ(word.add(2), 3u);
  EXPECT_EQ(word.subtract(5), 5u);
  EXPECT_EQ(word.subtract(1), 0u);
  EXPECT_EQ(word.value(), 0xFFFFFFFFu);
}

// What was written before the change is seen after it, by those that look and by those that sleep.
TEST(WaitedWord, TwoThreadsTakeTurns) {
  for (const int looks : {0, 100000}) {
    constexpr std::uint32_t kTurns = 2000;
    WaitedWord word;
    std::vector<std::uint32_t> seen;  // written in turn
    const auto player = [&](std::uint32_t first) {
      for (std::uint32_t turn = first; turn < kTurns; turn += 2) {
        for (std::uint32_t now = word.value(); now != turn; now = word.value()) word.wait_while(now, looks);
        seen.push_back(turn);
        word.add(1);
      }
    };
    std::thread other([&] { player(1); });
    player(0);
    other.join();
    ASSERT_EQ(seen.size(), kTurns);
    for (std::uint32_t i = 0; i < kTurns; ++i) ASSERT_EQ(seen[i], i);
  }
}

TEST(WaitedWord, AllThatSleepAreWoken) {
  WaitedWord word;
  std::vector<std::thread> threads;
  for (int i = 0; i < 5; ++i) threads.emplace_back([&] { word.wait_while(0, 0); });
  std::this_thread::sleep_for(milliseconds(20));
  word.add(1);
  for (std::thread& thread : threads) thread.join();
}

TEST(WaitedWord, WhoSleepsComputesNothing) {
  WaitedWord word;
  Seconds spent{0};
  std::thread sleeper([&] {
    word.wait_while(0, 1000);
    spent = thread_cpu_time();
  });
  std::this_thread::sleep_for(milliseconds(300));
  word.add(1);
  sleeper.join();
  EXPECT_LT(spent.count, 0.1);
}

}  // namespace
}  // namespace trireme
