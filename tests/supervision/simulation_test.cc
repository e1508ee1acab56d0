// The supervisor's deciding part against simulated worlds in which everything goes wrong that may, at any moment. What
// must hold: run_judge.h. Every rule is shown to catch a decider that breaks it.
// TRIREME_SUPERVISION_SEEDS: how many worlds, 1000 unless it is set (200 under sanitizers).

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "supervision/run_judge.h"
#include "supervision/scenarios.h"
#include "supervision/simulated_world.h"

namespace trireme::supervisor {
namespace {

constexpr double kMostSimulated_s = 3 * 86400;
constexpr int kMostEvents = 2'000'000;
constexpr int kMostTicksAtOnce = 3;
constexpr std::size_t kTold = 40;

// A decider, or a world, that breaks a rule.
struct Mutant {
  std::string name;
  std::string broken;  // in the judge's words
  std::function<void(Policy&)> policy = nullptr;
  std::function<void(Scenario&)> world = nullptr;
  std::function<std::optional<ReshapeChoice>(const Scenario&, const std::vector<Host>&)> choose = nullptr;
  std::function<bool(Event&)> hear = nullptr;  // false: it is not told
  std::function<void(std::vector<Action>&)> act = nullptr;
  bool takes_kill_for_end = false;
};

struct Outcome {
  std::optional<std::string> broken;
  std::optional<Finish> finish;
  std::vector<std::string> told;  // the last of it
  int launches = 0, failures = 0, recoveries = 0, events = 0;
  double simulated_s = 0;
};

class Simulation {
 public:
  Simulation(const Scenario& scenario, const Mutant* mutant, bool tells)
      : scenario_(scenario), mutant_(mutant), tells_(tells), world_(scenario_), judge_(scenario_, world_) {
    world_.tell = [this](const Event& event) { hear(event); };
    world_.lose_supervisor = [this] { lose_supervisor(); };
    world_.note = [this](const std::string& text) { tell(text); };
  }

  Outcome run() {
    begin(false);
    int ticks = 0;
    double last_tick = -1;
    while (!judge_.broken() && !judge_.finish() && world_.now() < kMostSimulated_s && events_ < kMostEvents) {
      const double tick = decider_ ? decider_->next_tick().count : 1e18;
      if (tick > world_.next_event()) {
        world_.run_next();
        continue;
      }
      ticks = tick == last_tick ? ticks + 1 : 0;
      last_tick = tick;
      if (ticks > kMostTicksAtOnce) return outcome(fmt::format("it spins ({})", decider_->state()));
      world_.pass_to(std::max(tick, world_.now()));
      hear(Tick{});
    }
    if (!judge_.broken() && judge_.finish()) {  // whatever comes now, it is silent
      for (int i = 0; i < 20 && world_.next_event() < world_.now() + 60 && decider_; ++i) world_.run_next();
    }
    if (!judge_.broken() && decider_) judge_.look_back(decider_->summary({world_.now()}));
    return outcome(std::nullopt);
  }

 private:
  Outcome outcome(std::optional<std::string> broken) {
    return {.broken = broken ? broken : judge_.broken(),
            .finish = judge_.finish(),
            .told = {told_.begin(), told_.end()},
            .launches = judge_.launches(),
            .failures = judge_.failures(),
            .recoveries = judge_.recoveries(),
            .events = events_,
            .simulated_s = world_.now()};
  }

  void begin(bool supervisor_lost) {
    Policy policy = scenario_.policy;
    if (mutant_ != nullptr && mutant_->policy) mutant_->policy(policy);
    decider_ = std::make_unique<Decider>(policy, [this](const std::vector<Host>& hosts) {
      return mutant_ != nullptr && mutant_->choose ? mutant_->choose(scenario_, hosts) : scenario_.choose(hosts);
    });
    keepers_.clear();
    hear(Begin{.hosts = world_.listed(), .supervisor_lost = supervisor_lost});
  }

  void lose_supervisor() {
    if (!decider_ || judge_.finish()) return;
    decider_.reset();
    judge_.supervisor_lost();
    world_.supervisor_gone();
    world_.after(0.05 + static_cast<double>(scenario_.seed % 50) / 10, [this] { begin(true); });
  }

  void hear(Event event) {
    if (!decider_ || judge_.broken()) return;
    ++events_;
    if (tells_) tell(text_of(event));
    remember_keepers(event);
    if (mutant_ != nullptr && mutant_->hear && !mutant_->hear(event)) return;
    std::vector<Action> actions = decider_->decide(event, {world_.now()});
    if (mutant_ != nullptr && mutant_->act) mutant_->act(actions);
    judge_.saw(event, actions);
    bool killed = false;
    for (const Action& action : actions) {
      if (tells_) tell("  " + text_of(action));
      if (judge_.broken()) return;
      perform(action);
      const auto* send = std::get_if<SendAll>(&action);
      killed = killed || (send != nullptr && std::holds_alternative<telemetry::Kill>(send->message));
    }
    if (!killed || mutant_ == nullptr || !mutant_->takes_kill_for_end) return;
    for (const int keeper : std::exchange(keepers_, {})) hear(Heard{keeper, telemetry::ProcessEnded{.signal = 9}});
  }

  void remember_keepers(const Event& event) {
    const auto* heard = std::get_if<Heard>(&event);
    if (heard == nullptr) return;
    const auto* hello = std::get_if<telemetry::Hello>(&heard->message);
    if (hello != nullptr && hello->keeper) keepers_.push_back(heard->peer);
  }

  void perform(const Action& action) {
    if (const auto* launch = std::get_if<Launch>(&action)) world_.launch(*launch);
    if (const auto* send = std::get_if<SendAll>(&action)) world_.send_all(*send);
    if (std::holds_alternative<EndLauncher>(action)) world_.end_launcher();
    if (const auto* probe = std::get_if<Probe>(&action)) world_.probe(probe->host);
  }

  void tell(const std::string& text) {
    if (!tells_ || text.empty()) return;
    told_.push_back(fmt::format("{:10.3f} {}", world_.now(), text));
    if (told_.size() > kTold) told_.pop_front();
  }

  // What is not worth a line: none.
  static std::string text_of(const Event& event) {
    if (const auto* heard = std::get_if<Heard>(&event)) {
      if (std::holds_alternative<telemetry::Alive>(heard->message)) return "";
      return fmt::format("peer {}: {}", heard->peer, telemetry::to_json(heard->message).dump());
    }
    if (const auto* gone = std::get_if<PeerGone>(&event)) return fmt::format("peer {} is gone", gone->peer);
    if (const auto* ended = std::get_if<LauncherEnded>(&event)) return fmt::format("launcher ended: {}", ended->code);
    if (const auto* listed = std::get_if<HostsListed>(&event)) {
      return fmt::format("listed: {}", Placement{listed->hosts}.text());
    }
    if (const auto* probed = std::get_if<Probed>(&event)) return fmt::format("probed {}: {}", probed->host, probed->ok);
    if (const auto* begun = std::get_if<Begin>(&event)) return fmt::format("begin, {} lost", begun->supervisor_lost);
    return std::holds_alternative<StopAsked>(event) ? "asked to stop" : "";
  }

  static std::string text_of(const Action& action) {
    if (const auto* launch = std::get_if<Launch>(&action)) return "launch on " + launch->placement.text();
    if (const auto* send = std::get_if<SendAll>(&action)) {
      return fmt::format("send {} to {}", telemetry::to_json(send->message).dump(),
                         send->keepers ? "keepers" : "ranks");
    }
    if (std::holds_alternative<EndLauncher>(action)) return "end launcher";
    if (const auto* probe = std::get_if<Probe>(&action)) return "probe " + probe->host;
    if (const auto* say = std::get_if<Say>(&action)) return "say " + say->text;
    if (const auto* finish = std::get_if<Finish>(&action)) {
      return fmt::format("finish {} {}", static_cast<int>(finish->code), finish->text);
    }
    const auto& line = std::get<Write>(action).line;
    if (const auto* incident = std::get_if<Incident>(&line)) return "write " + to_json(*incident).dump();
    return "write " + to_json(std::get<Recovery>(line)).dump();
  }

  const Scenario& scenario_;
  const Mutant* mutant_;
  const bool tells_;
  SimulatedWorld world_;
  RunJudge judge_;
  std::unique_ptr<Decider> decider_;
  std::vector<int> keepers_;
  std::deque<std::string> told_;
  int events_ = 0;
};

Outcome simulate(std::uint64_t seed, const Mutant* mutant = nullptr, bool tells = false) {
  Scenario scenario = make_scenario(seed);
  if (mutant != nullptr && mutant->world) mutant->world(scenario);
  return Simulation(scenario, mutant, tells).run();
}

std::uint64_t seeds() {
  if (const char* text = std::getenv("TRIREME_SUPERVISION_SEEDS")) return std::strtoull(text, nullptr, 10);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return 200;
#else
  return 1000;
#endif
}

TEST(Simulation, EveryRunEndsAndNoRuleIsBroken) {
  constexpr int kMostReported = 5;
  std::map<std::string, int> ends;
  std::int64_t events = 0;
  int broken = 0, launches = 0, failures = 0, recoveries = 0;
  double simulated_s = 0;
  for (std::uint64_t seed = 0; seed < seeds() && broken < kMostReported; ++seed) {
    const Outcome outcome = simulate(seed);
    events += outcome.events;
    launches += outcome.launches;
    failures += outcome.failures;
    recoveries += outcome.recoveries;
    simulated_s += outcome.simulated_s;
    if (outcome.finish) ++ends[fmt::format("{}", static_cast<int>(outcome.finish->code))];
    if (!outcome.broken) continue;
    ++broken;
    const Outcome again = simulate(seed, nullptr, true);
    ADD_FAILURE() << fmt::format("seed {} ({}): {}\n{}", seed, make_scenario(seed).name, *outcome.broken,
                                 fmt::join(again.told, "\n"));
  }
  fmt::print("{} events, {} starts, {} failures, {} recoveries, {:.1f} simulated hours; exit codes: {}\n", events,
             launches, failures, recoveries, simulated_s / 3600, fmt::join(ends, ", "));
  if (seeds() < 200 || broken > 0) return;
  for (const char* code : {"0", "72", "75", "76", "78", "79", "88", "130"}) EXPECT_GT(ends[code], 0) << code;
}

TEST(Simulation, ASeedIsAlwaysTheSameRun) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    const Outcome one = simulate(seed, nullptr, true), other = simulate(seed, nullptr, true);
    EXPECT_EQ(one.told, other.told) << seed;
    EXPECT_EQ(one.events, other.events) << seed;
  }
}

const telemetry::Message* message_of(const Event& event) {
  const auto* heard = std::get_if<Heard>(&event);
  return heard == nullptr ? nullptr : &heard->message;
}

void add_mutants_of_starts(std::vector<Mutant>& all) {
  all.push_back({.name = "starts before all is gone", .broken = "two writers", .takes_kill_for_end = true});
  all.push_back({.name = "workers outlive their fence", .broken = "two writers", .world = [](Scenario& scenario) {
                   scenario.fence_s = 30;
                 }});
  all.push_back({.name = "takes no silence for a loss", .broken = "no reaction", .policy = [](Policy& policy) {
                   policy.lost_after = {1e9};
                 }});
  all.push_back({.name = "takes nothing for a hang",
                 .broken = "no reaction",
                 .world = [](Scenario& scenario) { scenario.comm_deadline_s = 1e9; },
                 .hear =
                     [progress = std::int64_t{0}](Event& event) mutable {
                       auto* heard = std::get_if<Heard>(&event);
                       auto* alive = heard == nullptr ? nullptr : std::get_if<telemetry::Alive>(&heard->message);
                       if (alive == nullptr) return true;
                       for (telemetry::RankProgress& rank : alive->ranks) rank.advances = ++progress;
                       return true;
                     }});
  all.push_back({.name = "blames those that have lost a peer",
                 .broken = "is blamed for what happened to",
                 .hear = [](Event& event) {
                   auto* heard = std::get_if<Heard>(&event);
                   auto* ended = heard == nullptr ? nullptr : std::get_if<telemetry::RankEnded>(&heard->message);
                   if (ended != nullptr && ended->code == 88) ended->code = 70;
                   return true;
                 }});
  all.push_back({.name = "never gives up", .broken = "no end of it", .policy = [](Policy& policy) {
                   policy.retries = 1'000'000;
                 }});
  all.push_back({.name = "forgets what is durable", .broken = "it gives up after", .hear = [](Event& event) {
                   auto* heard = std::get_if<Heard>(&event);
                   if (heard == nullptr) return true;
                   if (auto* resumed = std::get_if<telemetry::Resumed>(&heard->message)) resumed->continues = false;
                   return !std::holds_alternative<telemetry::Saved>(heard->message);
                 }});
}

void add_mutants_of_words(std::vector<Mutant>& all) {
  all.push_back(
      {.name = "uses hosts that are no longer listed",
       .broken = "not listed",
       .choose = [](const Scenario& scenario, const std::vector<Host>&) { return scenario.choose(scenario.hosts); }});
  all.push_back({.name = "changes the global batch",
                 .broken = "the global batch",
                 .choose = [](const Scenario& scenario, const std::vector<Host>& hosts) {
                   std::optional<ReshapeChoice> choice = scenario.choose(hosts);
                   if (!choice || choice->layout.dp != 4) return choice;
                   choice->layout.dp = 3;
                   choice->placement = place(hosts, 3);
                   return choice;
                 }});
  all.push_back(
      {.name = "writes no incidents", .broken = "no incident says why", .act = [](std::vector<Action>& actions) {
         std::erase_if(actions, [](const Action& action) {
           const auto* write = std::get_if<Write>(&action);
           return write != nullptr && std::holds_alternative<Incident>(write->line);
         });
       }});
  all.push_back({.name = "forgets a part of a recovery", .broken = "add up", .act = [](std::vector<Action>& actions) {
                   for (Action& action : actions) {
                     auto* write = std::get_if<Write>(&action);
                     auto* recovery = write == nullptr ? nullptr : std::get_if<Recovery>(&write->line);
                     if (recovery != nullptr) recovery->launch_s = 0;
                   }
                 }});
  all.push_back({.name = "stops without a save", .broken = "stopped after step", .world = [](Scenario& scenario) {
                   scenario.saves_when_stopped = false;
                 }});
  all.push_back({.name = "is not told how ranks end", .broken = "it ends with 78", .hear = [](Event& event) {
                   const telemetry::Message* message = message_of(event);
                   const auto* ended = message == nullptr ? nullptr : std::get_if<telemetry::RankEnded>(message);
                   return ended == nullptr || ended->code != 0;
                 }});
}

std::vector<Mutant> mutants() {
  std::vector<Mutant> all;
  add_mutants_of_starts(all);
  add_mutants_of_words(all);
  return all;
}

// A rule that nothing can break is none.
TEST(Simulation, EveryRuleCatchesWhatBreaksIt) {
  constexpr std::uint64_t kMostSeeds = 400;
  for (const Mutant& mutant : mutants()) {
    std::optional<std::uint64_t> caught;
    std::map<std::string, int> others;
    for (std::uint64_t seed = 0; seed < kMostSeeds && !caught; ++seed) {
      const Outcome outcome = simulate(seed, &mutant);
      if (!outcome.broken) continue;
      if (outcome.broken->find(mutant.broken) != std::string::npos) caught = seed;
      ++others[*outcome.broken];
    }
    EXPECT_TRUE(caught) << mutant.name << ": " << fmt::format("{}", fmt::join(others, "\n"));
    if (caught) fmt::print("{}: caught at seed {}\n", mutant.name, *caught);
  }
}

}  // namespace
}  // namespace trireme::supervisor
