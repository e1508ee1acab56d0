#include "supervisor/decider.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace trireme::supervisor {
namespace {

template <class Wanted>
std::vector<Wanted> all_of(const std::vector<Action>& actions) {
  std::vector<Wanted> found;
  for (const Action& action : actions) {
    if (const auto* one = std::get_if<Wanted>(&action)) found.push_back(*one);
  }
  return found;
}

Policy patient() {
  Policy policy;
  policy.patience.floor = Seconds{2};
  return policy;
}
Policy waits_for_all() {
  Policy policy = patient();
  policy.all_silent = Seconds{60};
  return policy;
}

std::vector<Incident> incidents_in(const std::vector<Action>& actions) {
  std::vector<Incident> found;
  for (const Write& write : all_of<Write>(actions)) {
    if (const auto* one = std::get_if<Incident>(&write.line)) found.push_back(*one);
  }
  return found;
}

// A run of a rank on each host: of two, peers 1 and 2 are the keepers, 3 and 4 the ranks.
struct SmallRun {
  Policy policy;
  std::vector<Host> hosts{{.name = "a"}, {.name = "b"}};
  Decider decider{policy, [](const std::vector<Host>& there) -> std::optional<ReshapeChoice> {
                    plan::Layout layout;
                    layout.dp = static_cast<int>(there.size());
                    if (there.empty()) return std::nullopt;
                    return ReshapeChoice{.layout = layout, .placement = place(there, layout.dp)};
                  }};
  double now = 0;
  int peers = 0;

  std::vector<Action> tell(const Event& event, double after = 0.01) {
    now += after;
    return decider.decide(event, {now});
  }
  void begin() { tell(Begin{.hosts = hosts}); }
  void connect(bool resumed = true) {
    for (const bool keeper : {true, false}) {
      for (int rank = 0; rank < std::ssize(hosts); ++rank) {
        telemetry::Hello hello;
        hello.keeper = keeper;
        hello.ranks = {rank};
        hello.host = hosts[static_cast<std::size_t>(rank)].name;
        tell(Heard{++peers, hello});
      }
    }
    if (resumed) tell(Heard{static_cast<int>(hosts.size()) + 1, telemetry::Resumed{}});
  }
};

TEST(Decider, WhatALostSupervisorHasLeftIsWaitedFor) {
  SmallRun run;
  EXPECT_TRUE(all_of<Launch>(run.tell(Begin{.hosts = {{.name = "a"}}, .supervisor_lost = true})).empty());
  EXPECT_TRUE(all_of<Launch>(run.tell(Tick{}, 2.9)).empty());
  EXPECT_EQ(all_of<Launch>(run.tell(Tick{}, 0.1)).size(), 1U);
}

TEST(Decider, NothingStartsBeforeAllIsGone) {
  SmallRun run;
  run.begin();
  run.connect();
  const std::vector<Action> actions = run.tell(Heard{1, telemetry::ProcessEnded{.signal = 11, .code = 0, .ranks = {}}});
  ASSERT_EQ(incidents_in(actions).size(), 1U);
  EXPECT_EQ(incidents_in(actions)[0].ranks, std::vector<int>{0});
  EXPECT_EQ(incidents_in(actions)[0].signal, 11);
  EXPECT_EQ(all_of<SendAll>(actions).size(), 2U);  // to keepers, and to ranks
  EXPECT_TRUE(all_of<Launch>(actions).empty());
  EXPECT_EQ(all_of<Launch>(run.tell(Heard{2, telemetry::ProcessEnded{.signal = 9, .code = 0, .ranks = {}}})).size(),
            1U);
}

TEST(Decider, WhoHasLostAPeerIsNotToBlame) {
  SmallRun run;
  run.begin();
  run.connect();
  EXPECT_TRUE(run.tell(Heard{4, telemetry::RankEnded{.rank = 1, .code = 88, .message = "lost"}}).empty());
  const std::vector<Incident> incidents =
      incidents_in(run.tell(Heard{1, telemetry::ProcessEnded{.signal = 9, .code = 0, .ranks = {}}}, 0.3));
  ASSERT_EQ(incidents.size(), 1U);
  EXPECT_EQ(incidents[0].ranks, std::vector<int>{0});
}

TEST(Decider, WordsThatOvertakeEachOtherAreNoFailure) {
  SmallRun run;
  run.begin();
  run.connect();
  run.tell(Heard{1, telemetry::ProcessEnded{}});  // before the rank's own last word
  run.tell(Heard{3, telemetry::RankEnded{}});
  EXPECT_TRUE(run.tell(Heard{4, telemetry::Alive{}}, 1).empty());
  run.tell(Heard{4, telemetry::RankEnded{.rank = 1, .code = 0, .message = ""}});
  const std::vector<Finish> finish = all_of<Finish>(run.tell(LauncherEnded{}));
  ASSERT_EQ(finish.size(), 1U);
  EXPECT_EQ(finish[0].code, ExitCode::kDone);
}

TEST(Decider, HostsThatAreLostTogetherAreLeftOutTogether) {
  SmallRun run;
  run.hosts.push_back({.name = "c"});
  run.begin();
  run.connect();
  for (int second = 0; second < 2; ++second) {
    for (const int peer : {1, 4}) run.tell(Heard{peer, telemetry::Alive{}}, 0.5);
  }
  run.tell(Heard{1, telemetry::ProcessEnded{.signal = 9, .code = 0, .ranks = {}}});
  for (const int peer : {1, 4}) run.tell(PeerGone{peer});
  const std::vector<Launch> launches = all_of<Launch>(run.tell(Tick{}, 3));
  ASSERT_EQ(launches.size(), 1U);
  EXPECT_EQ(launches[0].placement.text(), "a:1");
}

TEST(Decider, WhatKeepsAStartFromBeginningAnywhereIsLookedFor) {
  SmallRun run;
  run.begin();
  run.tell(LauncherEnded{.signal = 0, .code = 1});
  const std::vector<Action> actions = run.tell(Tick{}, 1);
  ASSERT_EQ(all_of<Probe>(actions).size(), 2U);
  EXPECT_TRUE(all_of<Launch>(actions).empty());
  EXPECT_TRUE(all_of<Launch>(run.tell(Probed{.host = "a", .ok = true})).empty());
  const std::vector<Launch> launches = all_of<Launch>(run.tell(Probed{.host = "b", .ok = false}));
  ASSERT_EQ(launches.size(), 1U);
  EXPECT_EQ(launches[0].placement.text(), "a:1");
}

bool asks_for_records(const std::vector<Action>& actions) {
  return std::ranges::any_of(all_of<SendAll>(actions), [](const SendAll& send) {
    return std::holds_alternative<telemetry::AskFlightRecords>(send.message);
  });
}

// A step has taken 0.1 s: 2 s without an advance are a hang.
void take_a_step(SmallRun& run) {
  for (const int peer : {3, 4}) run.tell(Heard{peer, telemetry::StepDone{peer - 3, 1, 0.1, 0.1}});
}

TEST(Decider, WhoeverIsStoppedTogetherIsWaitedFor) {
  SmallRun run{.policy = waits_for_all()};
  run.begin();
  run.connect();
  take_a_step(run);
  std::vector<Action> actions;
  for (int second = 0; second < 10; ++second) {
    for (const Action& action : run.tell(Tick{}, 1)) actions.push_back(action);
  }
  EXPECT_FALSE(asks_for_records(actions));
  EXPECT_EQ(all_of<Say>(actions).size(), 1U);
  for (const int peer : {1, 2, 3, 4}) EXPECT_TRUE(run.tell(Heard{peer, telemetry::Alive{}}).empty());
  EXPECT_TRUE(run.tell(Heard{1, telemetry::Alive{}}, 0.9).empty());
  // Whoever is silent while others speak is no less lost than before, and one that speaks and does nothing hangs.
  EXPECT_EQ(incidents_in(run.tell(Heard{1, telemetry::Alive{}}, 1)).at(0).kind, FailureKind::kHostLost);
}

// Before any step is known to be done nothing may advance for ten minutes; a process of which no thread speaks is not
// waited for so long.
TEST(Decider, AStoppedProcessIsAHangInAnyPhase) {
  for (const bool resumed : {false, true}) {
    SmallRun run{.policy = patient()};
    run.begin();
    run.connect(resumed);
    std::vector<Incident> incidents;
    const auto speak = [&](const std::vector<int>& who, double after) {
      for (const int peer : who) {
        for (Incident& one : incidents_in(run.tell(Heard{peer, telemetry::Alive{}}, after))) incidents.push_back(one);
      }
    };
    for (int word = 0; word < 40; ++word) speak({1, 2, 3, 4}, 0.15);
    EXPECT_TRUE(incidents.empty());
    for (int word = 0; word < 10; ++word) speak({1, 2, 3}, 0.15);
    EXPECT_TRUE(incidents.empty());
    for (int word = 0; word < 10 && incidents.empty(); ++word) speak({1, 2, 3}, 0.15);
    ASSERT_EQ(incidents.size(), 1U);
    EXPECT_EQ(incidents[0].kind, FailureKind::kHung);
    EXPECT_EQ(incidents[0].ranks, std::vector<int>{1});
  }
}

TEST(Decider, AStopWithoutEndIsAHang) {
  SmallRun run{.policy = waits_for_all()};
  run.begin();
  run.connect();
  take_a_step(run);
  run.tell(Tick{}, 59);
  EXPECT_TRUE(asks_for_records(run.tell(Tick{}, 2)));
}

TEST(Decider, WhoWasStoppedItselfBlamesNobody) {
  SmallRun run{.policy = patient()};
  run.begin();
  run.connect();
  take_a_step(run);
  for (const int peer : {1, 2, 3, 4}) run.tell(Heard{peer, telemetry::Alive{}}, 0.35);
  EXPECT_TRUE(run.tell(Rested{}, 0.1).empty());
  EXPECT_TRUE(run.tell(Heard{1, telemetry::Alive{}}, 1.4).empty());  // without it: a hang, and the other host silent
}

TEST(Decider, OneRequestThatReachesEveryProcessIsOne) {
  SmallRun run;
  run.begin();
  run.connect();
  const auto stops = [](const std::vector<Action>& actions) {
    return std::ranges::count_if(all_of<SendAll>(actions), [](const SendAll& send) {
      return std::holds_alternative<telemetry::Stop>(send.message);
    });
  };
  EXPECT_EQ(stops(run.tell(Heard{1, telemetry::StopHeard{.preempted = true}})), 0);
  EXPECT_TRUE(run.tell(Heard{2, telemetry::StopHeard{.preempted = true}}).empty());
  EXPECT_EQ(stops(run.tell(Tick{}, 0.5)), 1);
  EXPECT_TRUE(run.tell(StopAsked{.preempted = true}).empty());
  EXPECT_EQ(all_of<SendAll>(run.tell(StopAsked{.preempted = true}, 1.1)).size(), 2U);  // now it is a second one
}

TEST(Decider, SignalsOfALauncherThatEndsAllRanksAreNoRequest) {
  SmallRun run;
  run.begin();
  run.connect();
  run.tell(Heard{2, telemetry::StopHeard{.preempted = true}});
  EXPECT_EQ(incidents_in(run.tell(Heard{1, telemetry::ProcessEnded{.signal = 9, .code = 0, .ranks = {}}}, 0.2)).size(),
            1U);
  run.tell(Heard{2, telemetry::StopHeard{.preempted = true}});
  const std::vector<Action> actions =
      run.tell(Heard{2, telemetry::ProcessEnded{.signal = 9, .code = 0, .ranks = {}}}, 0.1);
  EXPECT_EQ(all_of<Launch>(actions).size(), 1U);
  EXPECT_TRUE(all_of<Say>(run.tell(Tick{}, 1)).empty());
}

TEST(Decider, WhatIsSavedIsNotToldAsLost) {
  for (const bool saved : {false, true}) {
    SmallRun run;
    run.begin();
    run.connect();
    take_a_step(run);
    run.tell(StopAsked{.preempted = true});
    if (saved) run.tell(Heard{3, telemetry::Saved{.step = 1}});
    run.tell(Heard{1, telemetry::ProcessEnded{.signal = 9, .code = 0, .ranks = {}}});
    const std::vector<Finish> finish =
        all_of<Finish>(run.tell(Heard{2, telemetry::ProcessEnded{.signal = 9, .code = 0, .ranks = {}}}));
    ASSERT_EQ(finish.size(), 1U);
    EXPECT_EQ(finish[0].code, saved ? ExitCode::kPreempted : ExitCode::kRequeue) << finish[0].text;
  }
}

TEST(Decider, ALauncherThatStartsNothingIsTriedOnce) {
  SmallRun run;
  run.hosts = {{.name = "a"}};
  run.begin();
  run.tell(LauncherEnded{.signal = 0, .code = 1});
  const std::vector<Action> actions = run.tell(Tick{}, 1);
  ASSERT_EQ(all_of<Finish>(actions).size(), 1U);
  EXPECT_EQ(all_of<Finish>(actions)[0].code, ExitCode::kUsage);
  EXPECT_TRUE(all_of<Finish>(actions)[0].never_began);
}

TEST(Decider, SoIsOneThatReachesNoHost) {
  SmallRun run;
  run.begin();
  run.tell(LauncherEnded{.signal = 0, .code = 1});
  run.tell(Tick{}, 1);
  run.tell(Probed{.host = "a", .ok = false});
  const std::vector<Finish> finish = all_of<Finish>(run.tell(Probed{.host = "b", .ok = false}));
  ASSERT_EQ(finish.size(), 1U);
  EXPECT_TRUE(finish[0].never_began);
}

TEST(Decider, RanksThatNeverGetOnAreStartedOnce) {
  SmallRun run;
  run.begin();
  run.connect(false);
  run.tell(Heard{1, telemetry::ProcessEnded{.signal = 0, .code = 1, .ranks = {}}});
  const std::vector<Action> actions = run.tell(Tick{}, 1);
  EXPECT_EQ(incidents_in(actions).at(0).action, "end");
  run.tell(Heard{2, telemetry::ProcessEnded{.signal = 9, .code = 0, .ranks = {}}});
  EXPECT_EQ(run.decider.state(), "finished");
}

TEST(Decider, ALauncherThatHasStartedRanksBeforeIsTriedAgain) {
  SmallRun run;
  run.hosts = {{.name = "a"}};
  run.begin();
  run.connect();
  run.tell(Heard{1, telemetry::ProcessEnded{.signal = 9, .code = 0, .ranks = {}}});
  run.tell(LauncherEnded{.signal = 0, .code = 1});
  EXPECT_EQ(all_of<Finish>(run.tell(Tick{}, 1)).size(), 0U);
}

TEST(Decider, AStopBetweenTwoStartsEndsTheRun) {
  SmallRun run;
  run.tell(Begin{.hosts = {{.name = "a"}}, .supervisor_lost = true});
  const std::vector<Finish> finish = all_of<Finish>(run.tell(StopAsked{}));
  ASSERT_EQ(finish.size(), 1U);
  EXPECT_EQ(finish[0].code, ExitCode::kRequeue);
  EXPECT_TRUE(run.tell(Tick{}, 10).empty());
}

}  // namespace
}  // namespace trireme::supervisor
