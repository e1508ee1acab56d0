#include "supervisor/start.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::supervisor {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

telemetry::Hello hello_of(int rank, bool keeper, const std::string& host) {
  telemetry::Hello hello;
  hello.keeper = keeper;
  hello.ranks = {rank};
  hello.host = host;
  return hello;
}

// Two ranks on two hosts.
Start two() {
  plan::Layout layout;
  layout.dp = 2;
  return Start({.layout = layout, .placement = place({{.name = "a"}, {.name = "b"}}, 2)}, {0});
}

Start two_connected(Seconds now) {
  Start start = two();
  int peer = 0;
  for (const bool keeper : {true, false}) {
    start.hello(++peer, hello_of(0, keeper, "a"), now);
    start.hello(++peer, hello_of(1, keeper, "b"), now);
  }
  return start;
}

TEST(Start, NobodySpeaksForARankThatAnotherSpeaksForOrThatIsNot) {
  Start start = two();
  EXPECT_TRUE(start.hello(1, hello_of(0, false, "a"), {1}));
  EXPECT_FALSE(start.hello(2, hello_of(0, false, "a"), {1}));
  EXPECT_FALSE(start.hello(3, hello_of(2, false, "a"), {1}));
  EXPECT_THAT(start.hosts_not_heard(), ElementsAre("b"));
  EXPECT_FALSE(start.all_connected());
}

TEST(Start, WhoHasDoneAStepIsInTheNext) {
  using telemetry::Phase;
  Start start = two_connected({1});
  start.step_done(0, 3, {2});
  EXPECT_EQ(start.phase(), Phase::kStart);  // of the other rank
  start.step_done(1, 3, {2});
  EXPECT_EQ(start.phase(), Phase::kForward);
  EXPECT_EQ(start.step(), 4);
  for (const int rank : {0, 1}) start.progress({.rank = rank, .step = 4, .phase = Phase::kSave, .advances = 9}, {3});
  start.step_done(0, 3, {3});  // told late
  EXPECT_EQ(start.phase(), Phase::kSave);
  for (const int rank : {0, 1}) start.step_done(rank, 4, {4});
  EXPECT_EQ(start.phase(), Phase::kForward);
  EXPECT_EQ(start.step(), 5);
}

TEST(Start, AHostIsSilentBesideOneThatIsNot) {
  Start start = two_connected({1});
  start.heard(1, {4});
  EXPECT_THAT(start.silent_hosts({2.5}), ElementsAre("b"));
  EXPECT_THAT(start.silent_hosts({5}), IsEmpty());  // all are: who is alone cannot tell
}

TEST(Start, AHostWhoseProcessesHaveEndedIsNotSilent) {
  Start start = two_connected({1});
  for (const int peer : {2, 4}) start.peers().at(peer).gone = true;
  start.heard(1, {4});
  EXPECT_THAT(start.silent_hosts({2.5}), IsEmpty());
}

TEST(Start, AllIsGoneWhenKeepersSaySoOrAfterTheFence) {
  Start start = two_connected({1});
  EXPECT_FALSE(start.all_gone({2}));
  start.views()[0].process_ended = telemetry::ProcessEnded{};
  EXPECT_FALSE(start.all_gone({2}));
  EXPECT_EQ(start.gone_at_the_latest().count, 1 + telemetry::kFence_s + kFenceMargin_s);
  EXPECT_TRUE(start.all_gone({4}));
  start.views()[1].process_ended = telemetry::ProcessEnded{};
  EXPECT_TRUE(start.all_gone({2}));
}

TEST(Start, WhoRunsOnIsKnownOnceSomeHaveEndedInOrder) {
  Start start = two_connected({1});
  EXPECT_THAT(start.ranks_that_run_on(), IsEmpty());
  start.views()[0].ended = telemetry::RankEnded{};
  EXPECT_THAT(start.ranks_that_run_on(), ElementsAre(1));
}

}  // namespace
}  // namespace trireme::supervisor
