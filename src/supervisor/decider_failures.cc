// What a decider makes of a failure.

#include <algorithm>
#include <cmath>
#include <csignal>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "supervisor/decider_state.h"

namespace trireme::supervisor {
namespace {

constexpr int kMostDoublings = 20;
constexpr std::size_t kMostTold = 8;  // failures in a diagnosis

bool is(int code, ExitCode exit_code) { return code == static_cast<int>(exit_code); }

// Failures that are told apart.
bool same(const Incident& a, const Incident& b) {
  // All ranks find out that a loss is no number: who says so first means nothing.
  const bool whoever = is(a.code, ExitCode::kDiverged);
  return a.kind == b.kind && (whoever || a.ranks == b.ranks) && a.step == b.step && a.signal == b.signal &&
         a.code == b.code;
}

}  // namespace

std::string Decider::State::where(const std::vector<int>& ranks) const {
  if (ranks.empty()) return "no rank";
  std::string text = fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
  std::vector<std::string> hosts;
  for (int rank : ranks) {
    const std::string& host = start->host_of(rank);
    if (std::ranges::find(hosts, host) == hosts.end()) hosts.push_back(host);
  }
  const RankView& view = start->views()[static_cast<std::size_t>(ranks.front())];
  return fmt::format("{} on {}, in step {} ({})", text, fmt::join(hosts, ", "), view.progress.step,
                     telemetry::phase_name(view.progress.phase));
}

bool Decider::State::alone() const { return start->choice().placement.hosts.size() == 1; }

// A better witness may still come.
void Decider::State::suspect(Failing failing) { suspicions.push_back({.since = now, .failing = std::move(failing)}); }

// Words that overtake each other: what looked like an end without a word was none.
void Decider::State::lift_suspicions() {
  std::erase_if(suspicions, [this](const Suspicion& suspicion) {
    const std::vector<int>& ranks = suspicion.failing.ranks;
    return !ranks.empty() && std::ranges::all_of(ranks, [this](int rank) {
      const RankView& view = start->views()[static_cast<std::size_t>(rank)];
      if (!view.ended || view.ended->code != 0) return view.ended.has_value();  // its own word counts
      return !view.process_ended || (view.process_ended->signal == 0 && view.process_ended->code == 0);
    });
  });
}

// Processes that are known to have ended, or whose keepers are lost as well: no better word on them will come.
bool Decider::State::ended_for_good(const Failing& failing) const {
  return !failing.ranks.empty() && std::ranges::all_of(failing.ranks, [this](int rank) {
    const RankView& view = start->views()[static_cast<std::size_t>(rank)];
    return view.process_ended || (view.keeper && start->peers().at(*view.keeper).gone);
  });
}

// One that names nobody waits for as long as it takes until a host counts as silent.
Seconds Decider::State::ripe_at(const Suspicion& suspicion) const {
  const bool names_nobody = suspicion.failing.ranks.empty() && suspicion.failing.kind == FailureKind::kFailed;
  return {suspicion.since.count + policy.settle.count + (names_nobody ? policy.lost_after.count : 0)};
}

const Decider::State::Suspicion* Decider::State::ripe_suspicion() const {
  const auto ripe =
      std::ranges::find_if(suspicions, [this](const Suspicion& one) { return now.count >= ripe_at(one).count; });
  return ripe == suspicions.end() ? nullptr : &*ripe;
}

void Decider::State::ask_for_flight_records() {
  for (RankView& view : start->views()) view.records.reset();
  flight_until = Seconds{now.count + policy.flight_wait.count};
  actions.push_back(SendAll{.message = telemetry::AskFlightRecords{}});
}

void Decider::State::hung() {
  const HangReport report = diagnose_hang(start->evidence());
  Failing failing{.kind = FailureKind::kHung, .ranks = report.culprits, .hosts = {}, .message = report.text};
  if (std::ssize(report.culprits) == start->ranks() && start->ranks() > 1) failing.ranks.clear();  // all: nobody
  for (int rank : failing.ranks) add_host_of(failing, rank);
  if (!connected) failing.kind = FailureKind::kNotStarted;
  fail(std::move(failing));
}

Incident Decider::State::incident_of(const Failing& failing) const {
  Incident incident;
  incident.kind = failing.kind;
  incident.ranks = failing.ranks;
  incident.step = start->step();
  if (failing.hosts.size() == 1) incident.host = failing.hosts.front();
  incident.signal = failing.signal;
  incident.code = failing.code;
  incident.message = failing.message;
  incident.layout_before = plan::describe(start->choice().layout);
  Seconds last = start->last_advance();
  if (!failing.ranks.empty()) {
    const RankView& view = start->views()[static_cast<std::size_t>(failing.ranks.front())];
    incident.step = view.progress.step;
    incident.phase = telemetry::phase_name(view.progress.phase);
    last = view.last_advance;
  }
  incident.detected_after_s = now.count - last.count;
  return incident;
}

void Decider::State::add_host_of(Failing& failing, int rank) const {
  const std::string& host = start->host_of(rank);
  if (std::ranges::find(failing.hosts, host) == failing.hosts.end()) failing.hosts.push_back(host);
}

// A launcher that cannot start ranks on one host ends those on all others: those are not at fault.
void Decider::State::blame_hosts_not_heard(Failing& failing) const {
  const bool ended = failing.kind == FailureKind::kDied && (failing.signal == SIGKILL || failing.signal == SIGTERM);
  const std::vector<std::string> hosts = start->hosts_not_heard();
  if (connected || hosts.empty() || !(ended || failing.kind == FailureKind::kNotStarted)) return;
  failing.kind = FailureKind::kNotStarted;
  failing.ranks.clear();
  failing.hosts = hosts;
  failing.message =
      fmt::format("no rank on {} was there when the start ended: {}", fmt::join(hosts, ", "), failing.message);
}

void Decider::State::fail(Failing failing) {
  blame_hosts_not_heard(failing);
  if (failing.hosts.empty() && !failing.ranks.empty()) {
    for (int rank : failing.ranks) add_host_of(failing, rank);
  }
  Incident incident = incident_of(failing);
  fruitless.push_back(incident);
  next = after(failing, incident);
  actions.push_back(
      Say{.warning = true,
          .text = fmt::format("{}: {}; {}", failure_name(failing.kind), incident.message, incident.action)});
  record(incident);
  tally.failed(incident.layout_before, now);
  end_all();
  suspicions.clear();
  flight_until.reset();
  stage = Stage::kEnding;
}

// Those that were lost beside the one that was named, whose end nobody there has told.
void Decider::State::leave_out_silent_hosts() {
  for (const std::string& host : start->silent_hosts({now.count - policy.lost_after.count})) {
    const bool told = std::ranges::all_of(start->ranks_of(host), [this](int rank) {
      return start->views()[static_cast<std::size_t>(rank)].process_ended.has_value();
    });
    if (told || membership.is_out(host)) continue;
    membership.mark_away(host);
    membership.leave_out(host, now);
    actions.push_back(Say{.warning = true, .text = fmt::format("host {} is silent too: it is left out", host)});
  }
}

// One host that is not there keeps a launcher from beginning on any.
bool Decider::State::began_nowhere(const Failing& failing) const {
  return failing.kind == FailureKind::kNotStarted && !alone() &&
         start->hosts_not_heard().size() == start->choice().placement.hosts.size();
}

void Decider::State::answered(const Probed& event) {
  to_answer.erase(event.host);
  if (!event.ok) no_answer.insert(event.host);
  if (!to_answer.empty() || stage != Stage::kWaiting) return;
  launch_at.count = std::min(launch_at.count, now.count + next.pause.count);
  if (no_answer.size() == start->choice().placement.hosts.size()) {  // that tells of the launcher, not of them
    if (!ever_heard) finish({ExitCode::kUsage, "no host answers: no rank was ever heard", true});
    return;
  }
  for (const std::string& host : no_answer) {
    membership.mark_away(host);
    membership.leave_out(host, now);
    actions.push_back(Say{.warning = true, .text = fmt::format("host {} does not answer: it is left out", host)});
  }
}

Seconds Decider::State::pause() const {
  const auto in_a_row = static_cast<int>(fruitless.size());
  if (in_a_row <= 1) return {};
  const double pause = policy.backoff.count * std::exp2(std::min(in_a_row - 2, kMostDoublings));
  return {std::min(pause, policy.most_backoff.count)};
}

// Where starting again cannot help, or has not helped.
std::optional<Finish> Decider::State::verdict(const Failing& failing) {
  if (asked_to_stop && policy.saves && tally.durable() >= 0 && tally.durable() >= tally.furthest()) {
    return Finish{asked_preempted ? ExitCode::kPreempted : ExitCode::kInterrupted,
                  fmt::format("stopped, step {} is saved: the same command goes on from there ({})", tally.durable(),
                              failing.message)};
  }
  if (asked_to_stop) {
    return Finish{ExitCode::kRequeue, fmt::format("asked to stop, and no save came of it: {}", failing.message)};
  }
  if (std::optional<Finish> end = never_began(failing)) return end;
  for (const ExitCode code : {ExitCode::kUsage, ExitCode::kDoesNotFit}) {
    if (is(failing.code, code) && failing.signal == 0) return Finish{code, failing.message};
  }
  const std::size_t count = fruitless.size();
  if (is(failing.code, ExitCode::kDiverged) && count > 1 && same(fruitless[count - 2], fruitless[count - 1])) {
    return Finish{ExitCode::kDiverged, fmt::format("{}; the same again from {}: no fault of a machine", failing.message,
                                                   tally.durable() >= 0 ? "the checkpoint" : "the start")};
  }
  if (static_cast<int>(count) > policy.retries) return no_progress(failing);
  return std::nullopt;
}

// What has got nowhere the first time, and was not kept from it by force, will not the next time.
std::optional<Finish> Decider::State::never_began(const Failing& failing) const {
  if (failing.signal != 0 || failing.code == 0 || launches > 1) return std::nullopt;
  // Ends of this program's own that tell of others, or of what may pass.
  for (const ExitCode code : {ExitCode::kRequeue, ExitCode::kStorage, ExitCode::kHang, ExitCode::kRankLost}) {
    if (is(failing.code, code)) return std::nullopt;
  }
  const bool nobody = failing.kind == FailureKind::kNotStarted && !ever_heard && alone();
  const bool no_step = failing.kind == FailureKind::kDied && !ever_advanced;
  if (!nobody && !no_step) return std::nullopt;
  const bool no_room = is(failing.code, ExitCode::kDoesNotFit);
  return Finish{no_room ? ExitCode::kDoesNotFit : ExitCode::kUsage, failing.message, true};
}

Finish Decider::State::no_progress(const Failing& failing) const {
  const bool storage = is(failing.code, ExitCode::kStorage);  // what stands in the way now
  const bool alike =
      std::ranges::all_of(fruitless, [&](const Incident& incident) { return same(incident, fruitless.front()); });
  const std::string since = tally.durable() < 0
                                ? "no checkpoint was saved"
                                : fmt::format("no checkpoint beyond step {} was saved", tally.durable());
  std::string text = fmt::format("{} failures in a row, and {} meanwhile", fruitless.size(), since);
  if (alike) {
    text += fmt::format("; the same each time: {}", failing.message);
  } else {
    for (std::size_t i = fruitless.size() - std::min(fruitless.size(), kMostTold); i < fruitless.size(); ++i) {
      text += fmt::format("\n  {}: {}", failure_name(fruitless[i].kind), fruitless[i].message);
    }
  }
  return {storage ? ExitCode::kStorage : ExitCode::kNoProgress, text};
}

Decider::State::Next Decider::State::after(const Failing& failing, Incident& incident) {
  if (std::optional<Finish> end = verdict(failing)) {
    incident.action = "end";
    return {.choice = std::nullopt, .finish = *std::move(end), .pause = {}};
  }
  if (began_nowhere(failing)) {
    for (const Host& host : start->choice().placement.hosts) to_answer.insert(host.name);
    no_answer.clear();
    incident.action = "see which hosts answer, restart";
    return again(incident, pause());
  }
  const bool one_host = failing.hosts.size() == 1;
  std::vector<std::string> left_out;
  for (const std::string& host : failing.hosts) {
    const bool away = failing.kind == FailureKind::kHostLost;
    const bool too_often = (one_host || failing.kind == FailureKind::kNotStarted) && membership.failed(host, now);
    if (away) membership.mark_away(host);
    if (!away && !too_often) continue;
    if (std::ranges::find(left_out, host) == left_out.end()) left_out.push_back(host);
  }
  if (left_out.empty() || alone()) return again(incident, pause());
  for (const std::string& host : left_out) membership.leave_out(host, now);
  incident.action = fmt::format("leave out {}", fmt::join(left_out, ", "));
  return again(incident, pause());
}

Decider::State::Next Decider::State::again(Incident& incident, Seconds pause) {
  std::optional<ReshapeChoice> choice = choose(membership.available());
  if (!choice) {
    choice = choose_now();
    if (choice) incident.action = "restart with hosts that failed, or are spare: without them no layout is legal";
  }
  if (!choice) {
    incident.action = "end";
    const Finish end{ExitCode::kRankLost,
                     fmt::format("{}; no layout is legal on the hosts that are left", incident.message)};
    return {.choice = std::nullopt, .finish = end, .pause = {}};
  }
  if (incident.action.empty()) incident.action = "restart";
  if (choice->layout != start->choice().layout) {
    incident.action += fmt::format(", go on as {}", plan::describe(choice->layout));
  } else if (choice->placement != start->choice().placement) {
    incident.action += fmt::format(", go on on {}", choice->placement.text());
  }
  return {.choice = choice, .finish = {}, .pause = pause};
}

}  // namespace trireme::supervisor
