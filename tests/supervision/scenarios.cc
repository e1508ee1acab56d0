#include "supervision/scenarios.h"

#include <algorithm>

#include <fmt/format.h>

namespace trireme::supervisor {
namespace {

constexpr Trouble kOfProcesses[] = {Trouble::kKillRank, Trouble::kKillKeeper, Trouble::kKillBoth,
                                    Trouble::kStopRank, Trouble::kStickRank,  Trouble::kDropConnection};
constexpr Trouble kOfHosts[] = {Trouble::kLoseHost, Trouble::kCutHost, Trouble::kCutUp, Trouble::kCutDown};
constexpr Trouble kOfMembers[] = {Trouble::kUnlistHost, Trouble::kListHost, Trouble::kSlowHost};
constexpr Trouble kOthers[] = {Trouble::kFullDisk, Trouble::kNan, Trouble::kBadStarts, Trouble::kLateEnd,
                               Trouble::kWrongEnd};

template <std::size_t kCount>
Trouble one_of(const Trouble (&kinds)[kCount], Dice& dice) {
  return kinds[dice.below(static_cast<int>(kCount))];
}

Policy policy_of(Dice& dice) {
  Policy policy;
  policy.retries = 2 + dice.below(3);
  policy.most_backoff = {dice.between(2, 60)};
  policy.patience.start = {dice.between(15, 60)};
  policy.patience.most = {dice.between(10, 30)};
  policy.membership.cooldown = {dice.between(5, 120)};
  policy.membership.host_failures = 2 + dice.below(2);
  policy.retries = std::max(policy.retries, policy.membership.host_failures + 1);
  if (dice.chance(0.3)) policy.on_straggler = OnStraggler::kEvict;
  return policy;
}

Scenario plain(std::uint64_t seed, Dice& dice) {
  Scenario scenario;
  scenario.seed = seed;
  scenario.policy = policy_of(dice);
  scenario.local = dice.chance(0.2);
  if (scenario.local) {
    scenario.hosts = {{.name = "own", .slots = 1024}};
    scenario.ranks = 1 << dice.below(3);
  } else {
    const int hosts = 2 + dice.below(3);
    const int slots = 1 + dice.below(2);
    for (int host = 0; host < hosts; ++host)
      scenario.hosts.push_back({.name = fmt::format("host{}", host), .slots = slots});
    scenario.ranks = hosts * slots >= 4 ? 4 : 2;
    if (dice.chance(0.4)) scenario.hosts.push_back({.name = "spare", .slots = slots, .spare = true});
  }
  scenario.reshapes = dice.chance(0.7);
  scenario.steps = 6 + dice.below(20);
  scenario.save_every = 2 + dice.below(5);
  scenario.step_s = dice.between(0.3, 2);
  scenario.victims_speak = dice.chance(0.6);
  scenario.dies_with_keeper = dice.chance(0.7);
  scenario.comm_deadline_s = dice.chance(0.3) ? 5 : 90;
  return scenario;
}

// At any moment of the run, and what comes of it.
double any_time(const Scenario& scenario, Dice& dice) {
  const double work = static_cast<double>(scenario.steps) * scenario.step_s;
  return dice.between(0, work * 1.3 + 6);
}

void plant(Scenario& scenario, Trouble kind, Dice& dice) {
  PlantedTrouble trouble{.kind = kind, .at = any_time(scenario, dice), .where = dice.below(8)};
  trouble.lasting = dice.chance(0.25) ? dice.between(0.3, 3) : dice.between(6, 60);
  if (kind == Trouble::kLoseHost && dice.chance(0.2)) trouble.lasting = 1e9;
  scenario.troubles.push_back(trouble);
  // Troubles like company.
  if (!dice.chance(0.3)) return;
  trouble.kind = one_of(kOfProcesses, dice);
  trouble.at += dice.between(0, 6);
  trouble.where = dice.below(8);
  scenario.troubles.push_back(trouble);
}

void plant_any(Scenario& scenario, int count, Dice& dice) {
  for (int i = 0; i < count; ++i) {
    const double kind = dice.between(0, 1);
    if (kind < 0.5) {
      plant(scenario, one_of(kOfProcesses, dice), dice);
    } else if (kind < 0.7 && !scenario.local) {
      plant(scenario, one_of(kOfHosts, dice), dice);
    } else if (kind < 0.85 && !scenario.local) {
      plant(scenario, one_of(kOfMembers, dice), dice);
    } else {
      plant(scenario, one_of(kOthers, dice), dice);
    }
  }
}

// Whichever it is.
bool goes_on_without_a_host(const Scenario& scenario) {
  for (std::size_t without = 0; without < scenario.hosts.size(); ++without) {
    std::vector<Host> left = scenario.hosts;
    left.erase(left.begin() + static_cast<std::ptrdiff_t>(without));
    if (!scenario.choose(left)) return false;
  }
  return true;
}

void stop(Scenario& scenario, Trouble kind, Dice& dice) {
  scenario.troubles.push_back({.kind = kind, .at = any_time(scenario, dice)});
}

// The other worlds.
void plant_troubles(Scenario& scenario, Dice& dice) {
  using enum ExitCode;
  switch (scenario.seed % 16) {
    case 7:
      scenario.name = "one trouble of a process";
      scenario.troubles.push_back(
          {.kind = one_of(kOfProcesses, dice), .at = any_time(scenario, dice), .where = dice.below(8)});
      scenario.ends = {kDone};
      break;
    case 8:
      scenario.name = "one trouble of a host";
      if (!scenario.local) {
        scenario.troubles.push_back({.kind = one_of(kOfHosts, dice),
                                     .at = any_time(scenario, dice),
                                     .where = dice.below(8),
                                     .lasting = dice.chance(0.5) ? 1e9 : dice.between(0.5, 30)});
      }
      scenario.ends = {kDone};
      if (!goes_on_without_a_host(scenario)) scenario.ends = {kDone, kRankLost, kNoProgress};
      break;
    case 9:
      scenario.name = "hosts come and go";
      for (int i = 0; i < 3 && !scenario.local; ++i) plant(scenario, one_of(kOfMembers, dice), dice);
      scenario.ends = {kDone, kRankLost, kNoProgress};
      break;
    case 10:
      scenario.name = "the supervisor is lost";
      for (int i = 0; i < 2; ++i) stop(scenario, Trouble::kLoseSupervisor, dice);
      plant_any(scenario, dice.below(3), dice);
      scenario.ends = {kDone, kDoesNotFit, kRankLost, kNoProgress, kStorage};
      break;
    case 11:
      scenario.name = "preempted among troubles";
      plant_any(scenario, 2, dice);
      stop(scenario, dice.chance(0.5) ? Trouble::kPreempt : Trouble::kInterrupt, dice);
      scenario.ends = {kPreempted, kInterrupted, kDone, kRequeue, kRankLost, kNoProgress, kStorage};
      break;
    case 12:
      scenario.name = "no number once";
      scenario.troubles.push_back({.kind = Trouble::kNan, .at = any_time(scenario, dice)});
      scenario.ends = {kDone};
      break;
    default:
      scenario.name = "everything";
      plant_any(scenario, 1 + dice.below(7), dice);
      scenario.ends = {kDone, kRankLost, kNoProgress, kStorage, kDiverged};
      break;
  }
}

}  // namespace

Scenario make_scenario(std::uint64_t seed) {
  Dice dice(seed * 2 + 1);
  Scenario scenario = plain(seed, dice);
  using enum ExitCode;
  switch (seed % 16) {
    case 0:
      scenario.name = "nothing goes wrong";
      scenario.ends = {kDone};
      break;
    case 1:
      scenario.name = "a crash at one step, always";
      scenario.crash_step = 1 + dice.below(static_cast<int>(scenario.steps));
      scenario.ends = {kNoProgress};
      break;
    case 2:
      scenario.name = "no number at one step, always";
      scenario.nan_step = 1 + dice.below(static_cast<int>(scenario.steps));
      scenario.ends = {kDiverged};
      break;
    case 3:
      scenario.name = "a full disk";
      scenario.troubles.push_back({.kind = Trouble::kFullDisk, .at = dice.between(0, 5)});
      scenario.ends = {kStorage};
      break;
    case 4:
      scenario.name = "preempted";
      stop(scenario, Trouble::kPreempt, dice);
      scenario.ends = {kPreempted, kDone};
      break;
    case 5:
      scenario.name = "interrupted by the user";
      stop(scenario, Trouble::kInterrupt, dice);
      scenario.ends = {kInterrupted, kDone};
      break;
    case 6:
      scenario.name = "interrupted twice";
      stop(scenario, Trouble::kInterrupt, dice);
      scenario.troubles.push_back({.kind = Trouble::kInterrupt, .at = scenario.troubles[0].at + dice.between(0.1, 3)});
      scenario.ends = {kInterrupted, kRequeue, kDone};
      break;
    default:
      plant_troubles(scenario, dice);
      break;
  }
  return scenario;
}

}  // namespace trireme::supervisor
