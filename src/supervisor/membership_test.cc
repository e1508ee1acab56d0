#include "supervisor/membership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::supervisor {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const Host kA{.name = "a", .slots = 2}, kB{.name = "b", .slots = 2}, kC{.name = "c", .slots = 2, .spare = true};

// As it is used: in the place of another.
const Host kCInPlace{.name = "c", .slots = 2};

Membership three() {
  Membership members({.host_failures = 2, .forgive = {100}, .cooldown = {10}});
  members.list({kA, kB, kC});
  return members;
}

TEST(Membership, ASpareTakesAPlaceThatIsFree) {
  Membership members = three();
  EXPECT_THAT(members.available(), ElementsAre(kA, kB));
  members.leave_out("a", {0});
  EXPECT_THAT(members.available(), ElementsAre(kB, kCInPlace));
  EXPECT_THAT(members.all_present(), ElementsAre(kB, kCInPlace));
}

TEST(Membership, FailuresLongAgoAreForgiven) {
  Membership members = three();
  EXPECT_FALSE(members.failed("a", {0}));
  EXPECT_FALSE(members.failed("a", {101}));
  EXPECT_TRUE(members.failed("a", {150}));
  EXPECT_FALSE(members.failed("nobody", {150}));
}

TEST(Membership, AHostIsProbedLaterEachTimeThatItWasLeftOut) {
  Membership members = three();
  members.leave_out("a", {0});
  EXPECT_EQ(members.next_probe()->count, 10);
  EXPECT_THAT(members.take_due_probes({9.9}), IsEmpty());
  EXPECT_THAT(members.take_due_probes({10}), ElementsAre("a"));
  EXPECT_FALSE(members.next_probe());  // one at a time
  members.probed("a", false, {11});
  EXPECT_EQ(members.next_probe()->count, 21);
  EXPECT_THAT(members.take_due_probes({21}), ElementsAre("a"));
  members.probed("a", true, {22});
  EXPECT_THAT(members.available(), ElementsAre(kA, kB));
  members.leave_out("a", {30});
  EXPECT_EQ(members.next_probe()->count, 50);
}

TEST(Membership, OnlyHostsThatAreThereAreBroughtBack) {
  Membership members = three();
  members.leave_out("a", {0});
  members.leave_out("b", {0});
  members.mark_away("b");
  EXPECT_TRUE(members.bring_back_those_present());
  EXPECT_THAT(members.available(), ElementsAre(kA, kCInPlace));
  EXPECT_FALSE(members.bring_back_those_present());
}

TEST(Membership, AHostThatIsListedAgainIsFresh) {
  Membership members = three();
  members.leave_out("a", {0});
  members.list({kB});
  EXPECT_FALSE(members.is_listed("a"));
  members.list({kB, kA});
  EXPECT_THAT(members.available(), ElementsAre(kB, kA));
}

}  // namespace
}  // namespace trireme::supervisor
