#include "base/wait_clock.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

TEST(WaitClock, CountsWhatItLooksAt) {
  WaitClock clock(Seconds{100});
  EXPECT_EQ(clock.look(Seconds{100.5}), Seconds{0.5});
  EXPECT_EQ(clock.look(Seconds{101.25}), Seconds{1.25});
  EXPECT_EQ(clock.missed(), Seconds{0});
  clock.restart(Seconds{102});
  EXPECT_EQ(clock.look(Seconds{102.5}), Seconds{0.5});
}

TEST(WaitClock, WhoDidNotRunHasNotWaited) {
  WaitClock clock(Seconds{0});
  clock.look(Seconds{0.5});
  EXPECT_EQ(clock.look(Seconds{3600.5}), Seconds{1.5});
  EXPECT_EQ(clock.missed(), Seconds{3599});
  EXPECT_EQ(clock.look(Seconds{3601}), Seconds{2});
}

}  // namespace
}  // namespace trireme
