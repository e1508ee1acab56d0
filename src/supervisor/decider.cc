#include "supervisor/decider.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "supervisor/decider_state.h"

namespace trireme::supervisor {
namespace {

constexpr std::size_t kMostOpenSteps = 64;  // whose compute times are not complete

constexpr double kAllSilent_s = 2.4 * telemetry::kAliveEvery_s;  // of everybody: two words are missing of each

constexpr Seconds kAnswerWithin{15};  // of hosts that are asked whether they are there

// What is not done step by step: how long it takes once says little of the next time, and the small gaps between the
// words of several ranks nothing at all.
bool happens_once(telemetry::Phase phase) {
  using enum telemetry::Phase;
  return phase == kStart || phase == kLoad || phase == kFinish;
}
bool happens_seldom(telemetry::Phase phase) {
  return phase == telemetry::Phase::kSave || phase == telemetry::Phase::kValidation;
}

}  // namespace

Decider::State::State(Policy given, Choose chooser)
    : policy(std::move(given)), choose(std::move(chooser)), membership(policy.membership), patience(policy.patience) {}

Decider::Decider(Policy policy, Choose choose)
    : state_(std::make_unique<State>(std::move(policy), std::move(choose))) {}
Decider::~Decider() = default;

std::vector<Action> Decider::decide(const Event& event, Seconds now) {
  State& state = *state_;
  TRIREME_CHECK(now.count >= state.now.count, "time goes back from {} to {}", state.now.count, now.count);
  state.now = now;
  if (state.stage == State::Stage::kFinished) return {};
  std::visit([&](const auto& one) { state.take(one); }, event);
  state.look();
  return std::exchange(state.actions, {});
}

Seconds Decider::next_tick() const { return state_->next_tick(); }

Summary Decider::summary(Seconds now) const {
  return {.incidents = state_->incidents,
          .launches = state_->launches,
          .useful_s = state_->tally.useful_s(),
          .elapsed_s = now.count - state_->begun.count,
          .outcome = state_->outcome};
}

std::string Decider::state() const {
  using Stage = State::Stage;
  switch (state_->stage) {
    case Stage::kFresh:
      return "fresh";
    case Stage::kUp:
      return state_->stopping ? "stopping" : state_->flight_until ? "hung" : state_->resumed ? "running" : "starting";
    case Stage::kEnding:
      return "ending";
    case Stage::kWaiting:
      return "waiting";
    case Stage::kFinished:
      return "finished";
  }
  return "";
}

// ---- Events.

void Decider::State::take(const Begin& event) {
  TRIREME_CHECK(stage == Stage::kFresh, "begun twice");
  TRIREME_CHECK(!event.hosts.empty(), "no hosts");
  begun = now;
  membership.list(event.hosts);
  if (event.supervisor_lost) {
    Incident incident;
    incident.kind = FailureKind::kSupervisor;
    incident.message = "the supervisor of the start before was lost";
    incident.action = "go on";
    record(incident);
  }
  const std::optional<ReshapeChoice> choice = choose_now();
  if (!choice) {
    return finish({ExitCode::kDoesNotFit, "no layout of this run is legal on the hosts that are listed"});
  }
  if (!event.supervisor_lost) return launch(*choice);
  // What it has left may live until its fence.
  next = {.choice = choice, .finish = {}, .pause = {}};
  stage = Stage::kWaiting;
  launch_at = later(now, {telemetry::kFence_s + kFenceMargin_s});
}

void Decider::State::take(const Heard& event) {
  const bool hello_of_late =
      stage == Stage::kWaiting && start && std::holds_alternative<telemetry::Hello>(event.message);
  if (hello_of_late) stage = Stage::kEnding;  // something is left of the start after all
  if (stage != Stage::kUp && stage != Stage::kEnding) return;
  if (const auto* hello = std::get_if<telemetry::Hello>(&event.message)) return hear(event.peer, *hello);
  const auto peer = start->peers().find(event.peer);
  if (peer == start->peers().end()) return;   // its hello was not believed
  if (stage == Stage::kUp && all_silent()) {  // all were stopped, and go on
    start->rest(now);
    flight_until.reset();
  }
  start->heard(event.peer, now);
  std::visit([&](const auto& message) { hear(event.peer, message); }, event.message);
}

void Decider::State::take(const PeerGone& event) {
  if (!start) return;
  const auto found = start->peers().find(event.peer);
  if (found == start->peers().end()) return;
  Peer& peer = found->second;
  peer.gone = true;
  if (stage != Stage::kUp) return;
  const auto settled = [&](int rank) {
    const RankView& view = start->views()[static_cast<std::size_t>(rank)];
    return peer.keeper ? view.process_ended.has_value() : view.ended.has_value();
  };
  if (std::ranges::all_of(peer.ranks, settled)) return;
  suspect({.kind = FailureKind::kDied,
           .ranks = peer.ranks,
           .hosts = {peer.host},
           .message = fmt::format("the {} of {} is gone without a word", peer.keeper ? "keeper" : "process",
                                  where(peer.ranks))});
}

void Decider::State::take(const LauncherEnded& event) {
  if (stage == Stage::kUp) launcher_ended = event;
}

void Decider::State::take(const HostsListed& event) {
  membership.list(event.hosts);
  if (stage != Stage::kUp) return;
  // A host that is in use and no longer listed is to be left in peace: at once, in order.
  for (const Host& host : start->choice().placement.hosts) {
    if (membership.is_listed(host.name) || stopping) continue;
    if (!policy.saves) {
      actions.push_back(Say{.warning = true,
                            .text = fmt::format("host {} is no longer listed, and stays in use: this run writes no "
                                                "checkpoints, so that it would begin anew without it",
                                                host.name)});
      continue;
    }
    actions.push_back(Say{.text = fmt::format("host {} is no longer listed: the run goes on without it", host.name)});
    stop(StopReason::kLeaveOut);
  }
  consider_growing();
}

void Decider::State::take(const Probed& event) {
  if (to_answer.contains(event.host)) return answered(event);
  membership.probed(event.host, event.ok, now);
  if (event.ok) actions.push_back(Say{.text = fmt::format("host {} answers again", event.host)});
  consider_growing();
}

void Decider::State::take(const StopAsked& event) {
  const bool again = asked_to_stop;
  if (again && !reached(now, later(asked_at, policy.one_request))) return;
  if (!again) {
    asked_at = now;
    asked_preempted = event.preempted;
  }
  asked_to_stop = true;
  if (stage == Stage::kUp && !again) return stop(event.preempted ? StopReason::kPreempted : StopReason::kUser);
  const Finish ended{ExitCode::kRequeue, again ? "ended at once, without a save" : "asked to stop between two starts"};
  next = {.choice = std::nullopt, .finish = ended, .pause = {}};
  if (stage == Stage::kWaiting) return finish(ended);
  if (stage == Stage::kUp) {
    end_all();
    stage = Stage::kEnding;
  }
}

void Decider::State::take(const Rested&) {
  if (start) start->rest(now);
}

void Decider::State::take(const Tick&) {}

// ---- What workers say.

void Decider::State::hear(int peer, const telemetry::Hello& message) {
  if (!start->hello(peer, message, now)) return;
  ever_heard = true;
  // What all others were told before it came.
  if (stage == Stage::kEnding) end_all();
  if (stage == Stage::kUp && stopping) actions.push_back(SendAll{.message = telemetry::Stop{}});
  if (stage != Stage::kUp || connected || !start->all_connected()) return;
  connected = true;
  tally.connected(now);
}

void Decider::State::hear(int, const telemetry::Alive& message) {
  const Seconds before = start->last_advance();
  const telemetry::Phase phase = start->phase();
  bool advanced = false;
  for (const telemetry::RankProgress& progress : message.ranks) advanced |= start->progress(progress, now);
  if (!advanced) return;
  ever_advanced = true;
  if (!happens_once(phase)) patience->learn(phase, {now.count - before.count});
  if (stage == Stage::kUp && flight_until) {  // it was no hang
    flight_until.reset();
    actions.push_back(Say{.text = "it goes on: no hang"});
  }
}

void Decider::State::hear(int, const telemetry::StepDone& message) {
  if (!start->knows(message.rank) || stage != Stage::kUp) return;
  start->step_done(message.rank, message.step, now);
  if (message.rank == 0) {
    patience->step_done({message.step_s});
    write(tally.step_done(message.step, {message.step_s}, now));
  }
  OpenStep& open = open_steps[message.step];
  open.compute_s.resize(static_cast<std::size_t>(start->ranks()));
  open.compute_s[static_cast<std::size_t>(message.rank)] = std::max(message.compute_s, 1e-9);
  open.took.count = std::max(open.took.count, message.step_s);
  if (std::ranges::all_of(open.compute_s, [](double time) { return time > 0; })) look_for_stragglers(message.step);
  if (open_steps.size() > kMostOpenSteps) open_steps.erase(open_steps.begin());
}

void Decider::State::hear(int, const telemetry::Resumed& message) {
  if (stage != Stage::kUp) return;
  resumed = ever_advanced = true;
  start->got_on(0, now);
  tally.resumed(message.step, message.continues, now);
  note_progress();
}

void Decider::State::hear(int, const telemetry::Saved& message) {
  tally.saved(message.step);
  note_progress();
  if (stage != Stage::kUp) return;
  start->got_on(0, now);
  if (grow && !stopping && !flight_until) stop(StopReason::kGrow);
}

void Decider::State::hear(int, const telemetry::RankEnded& message) {
  if (!start->knows(message.rank)) return;
  RankView& view = start->views()[static_cast<std::size_t>(message.rank)];
  if (view.ended) return;
  view.ended = message;
  start->got_on(message.rank, now);
  if (stage != Stage::kUp || message.code == 0) return;
  Failing failing{.kind = FailureKind::kFailed,
                  .ranks = {message.rank},
                  .hosts = {start->host_of(message.rank)},
                  .code = message.code,
                  .message = message.message};
  // Only what another's failure has brought about.
  if (message.code == static_cast<int>(ExitCode::kRankLost)) {
    failing.ranks.clear();  // which is lost is not known by this
    failing.hosts.clear();
    return suspect(failing);
  }
  if (message.code == static_cast<int>(ExitCode::kHang)) {
    failing.kind = FailureKind::kHung;
    failing.ranks.clear();  // it has waited; who is missing is in its words
    failing.hosts.clear();
  }
  fail(failing);
}

void Decider::State::hear(int peer, const telemetry::ProcessEnded& message) {
  const Peer& keeper = start->peers().at(peer);
  bool clean = message.signal == 0 && message.code == 0;
  bool told = false;
  for (const telemetry::RankProgress& progress : message.ranks) start->last_known(progress);
  for (int rank : keeper.ranks) {
    RankView& view = start->views()[static_cast<std::size_t>(rank)];
    view.process_ended = message;
    clean = clean && view.clean();
    told = told || (view.ended && !view.clean());
  }
  if (stage != Stage::kUp || clean || told) return;
  Failing failing{.kind = FailureKind::kDied,
                  .ranks = keeper.ranks,
                  .hosts = {keeper.host},
                  .signal = message.signal,
                  .code = message.code,
                  .message = ""};
  failing.message = message.signal != 0
                        ? fmt::format("killed by signal {}: {}", message.signal, where(keeper.ranks))
                        : fmt::format("{} ended with code {} and no word", where(keeper.ranks), message.code);
  if (message.signal == 0) {  // its own words may still be under way; that its line is lost tells less than this
    std::erase_if(suspicions, [&](const Suspicion& one) { return one.failing.ranks == keeper.ranks; });
    return suspect(failing);
  }
  // A launcher ends all others when one is lost: those are not at fault.
  const bool by_force = message.signal == SIGKILL || message.signal == SIGTERM;
  for (const Suspicion& suspicion : suspicions) {
    if (by_force && suspicion.failing.ranks != keeper.ranks && ended_for_good(suspicion.failing))
      return fail(Failing(suspicion.failing));
  }
  fail(failing);
}

void Decider::State::hear(int, const telemetry::FlightRecords& message) {
  if (start->knows(message.rank)) start->views()[static_cast<std::size_t>(message.rank)].records = message.records;
}

void Decider::State::hear(int, const telemetry::Outcome& message) { outcome = message; }

// Every keeper of a start may say so, and the supervisor have heard it itself. A launcher that ends all ranks because
// of one signals them, too: then that one is heard of.
void Decider::State::hear(int, const telemetry::StopHeard& message) {
  if (stage == Stage::kUp && !asked_to_stop && !stop_heard) stop_heard = {now, message.preempted};
}

// ---- Time.

void Decider::State::look() {
  if (stage == Stage::kUp) look_at_start();
  if (stage == Stage::kEnding && start->all_gone(now)) {
    actions.push_back(EndLauncher{});
    leave_out_silent_hosts();
    tally.gone(now);
    stage = Stage::kWaiting;
    launch_at = later(now, to_answer.empty() ? next.pause : std::max(next.pause, kAnswerWithin));
    for (const std::string& host : to_answer) actions.push_back(Probe{host});
    // Hosts may have come meanwhile.
    if (!next.choice && next.finish.code == ExitCode::kRankLost && !asked_to_stop) next.choice = choose_now();
    if (!next.choice) return finish(next.finish);
  }
  if (stage == Stage::kWaiting && reached(now, launch_at)) launch_next();
  for (const std::string& host : membership.take_due_probes(now)) actions.push_back(Probe{host});
}

void Decider::State::look_at_start() {
  lift_suspicions();
  if (start->all_clean() && !clean_since) {
    clean_since = now;
    suspicions.clear();
  }
  if (clean_since) {
    if (launcher_ended && launcher_ended->code == 0 && launcher_ended->signal == 0) return ended_in_order();
    if (launcher_ended || reached(now, later(*clean_since, policy.end_wait))) {
      fail({.kind = FailureKind::kFailed,
            .ranks = {},
            .hosts = {},
            .signal = launcher_ended ? launcher_ended->signal : 0,
            .code = launcher_ended ? launcher_ended->code : 0,
            .message = launcher_ended ? "every rank ended in order, and the launcher did not"
                                      : "every rank ended in order, and the launcher does not end"});
    }
    return;
  }
  if (const Suspicion* suspicion = ripe_suspicion()) return fail(Failing(suspicion->failing));
  if (launcher_ended && suspicions.empty()) {
    suspect({.kind = connected ? FailureKind::kDied : FailureKind::kNotStarted,
             .ranks = start->ranks_that_run_on(),
             .hosts = {},
             .signal = launcher_ended->signal,
             .code = launcher_ended->code,
             .message = fmt::format("the launcher ended with {} {}{}", launcher_ended->signal != 0 ? "signal" : "code",
                                    launcher_ended->signal != 0 ? launcher_ended->signal : launcher_ended->code,
                                    connected ? "" : " before all ranks were there")});
    return;
  }
  if (std::optional<Failing> silent = silence()) return fail(std::move(*silent));
  if (stopping && reached(now, stop_until)) {
    return fail({.kind = FailureKind::kHung,
                 .ranks = {},
                 .hosts = {},
                 .message = fmt::format("the run was asked to stop, and has not within {:.1f} s", policy.grace.count)});
  }
  if (stop_heard && suspicions.empty() && reached(now, later(stop_heard->first, policy.settle))) {
    const bool preempted = stop_heard->second;
    stop_heard.reset();
    if (!asked_to_stop) take(StopAsked{.preempted = preempted});
  }
  if (all_silent()) {
    if (!std::exchange(all_silent_told, true)) {
      actions.push_back(Say{.warning = true,
                            .text = "no process of the run is heard, and none has ended: they seem to be stopped, and "
                                    "are waited for"});
    }
    return;
  }
  all_silent_told = false;
  if (flight_until) {
    const bool all =
        std::ranges::all_of(start->views(), [](const RankView& view) { return view.records || view.ended; });
    if (all || reached(now, *flight_until)) hung();
    return;
  }
  if (suspicions.empty() && reached(now, hang_at())) {
    ask_for_flight_records();
  }
}

// Of a host, or of a process, while others speak.
std::optional<Failing> Decider::State::silence() const {
  for (const std::string& host : start->silent_hosts({now.count - policy.lost_after.count})) {
    return Failing{.kind = FailureKind::kHostLost,
                   .ranks = start->ranks_of(host),
                   .hosts = {host},
                   .message = fmt::format("host {} is silent for {:.1f} s", host, policy.lost_after.count)};
  }
  if (const std::vector<int> ranks = start->stopped_ranks({now.count - policy.stopped_after.count}); !ranks.empty()) {
    return Failing{
        .kind = FailureKind::kHung,
        .ranks = ranks,
        .hosts = {},
        .message = fmt::format("nothing is heard of {} for {:.1f} s, though the keeper speaks: the process is stopped",
                               where(ranks), policy.stopped_after.count)};
  }
  return std::nullopt;
}

Seconds Decider::State::next_tick() const {
  if (stage == Stage::kFinished || stage == Stage::kFresh) return {now.count + 1e9};
  Seconds at{now.count + 3600};
  const auto no_later = [&](Seconds moment) { at.count = std::min(at.count, moment.count); };
  if (const std::optional<Seconds> probe = membership.next_probe()) no_later(*probe);
  if (stage == Stage::kWaiting) no_later(launch_at);
  if (stage == Stage::kEnding) no_later(start->gone_at_the_latest());
  if (stage == Stage::kUp) {
    if (clean_since) no_later(later(*clean_since, policy.end_wait));
    for (const Suspicion& suspicion : suspicions) no_later(ripe_at(suspicion));
    if (stopping) no_later(stop_until);
    if (stop_heard && suspicions.empty()) no_later(later(stop_heard->first, policy.settle));
    if (flight_until) no_later(*flight_until);
    if (!clean_since && suspicions.empty() && !flight_until) {
      no_later(hang_at());
    }
    Seconds oldest = now;
    for (const auto& [id, peer] : start->peers()) oldest.count = std::min(oldest.count, peer.last_heard.count);
    no_later({std::max(now.count + 0.05, oldest.count + policy.lost_after.count + 1e-3)});
  }
  return {std::max(at.count, now.count)};
}

bool Decider::State::all_silent() const {
  if (start->peers().empty()) return false;
  const double silent = now.count - start->last_heard().count;
  const bool any = std::ranges::any_of(start->peers(), [](const auto& entry) { return !entry.second.gone; });
  return any && silent > kAllSilent_s && silent < policy.all_silent.count;
}

// When it counts as a hang that nothing advances.
Seconds Decider::State::hang_at() const {
  const telemetry::Phase phase = start->phase();
  Seconds wait = patience->deadline(phase);
  if (happens_seldom(phase)) wait = std::max(wait, policy.patience.most);
  return later(start->last_advance(), wait);
}

}  // namespace trireme::supervisor
