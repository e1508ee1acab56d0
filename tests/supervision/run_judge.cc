#include "supervision/run_judge.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

namespace trireme::supervisor {
namespace {

// From a death to what is done about it: messages under way, and the wait for a better witness.
constexpr double kQuick_s = 4;
// From a request to end all to their end, where some must end themselves.
constexpr double kEnding_s = 10;

bool of_process(Trouble kind) {
  return kind == Trouble::kKillRank || kind == Trouble::kKillKeeper || kind == Trouble::kKillBoth ||
         kind == Trouble::kStopRank || kind == Trouble::kStickRank;
}

}  // namespace

void RunJudge::saw(const Event& event, const std::vector<Action>& actions) {
  rule(!finish_ || actions.empty(), "it acts after its end");
  if (finish_) return;
  if (world_.durable() > durable_) {
    durable_ = world_.durable();
    launches_since_ = news_since_ = 0;
  }
  heard(event);
  for (const Action& action : actions) {
    rule(!finish_, "it acts after its end");
    std::visit([&](const auto& one) { take(one); }, action);
  }
  look_at_reaction();
}

// What may make a run move to other hosts in order.
void RunJudge::note_news() {
  ++news_since_;
  news_since_launch_ = true;
}

void RunJudge::heard(const Event& event) {
  if (std::holds_alternative<HostsListed>(event) || std::holds_alternative<Probed>(event)) note_news();
  if (std::holds_alternative<StopAsked>(event)) ++stops_;
  const auto* heard = std::get_if<Heard>(&event);
  if (heard == nullptr) return;
  std::int64_t step = 0;
  if (const auto* saved = std::get_if<telemetry::Saved>(&heard->message)) step = saved->step;
  // Of a start that has failed meanwhile it is no news.
  const auto* resumed = std::get_if<telemetry::Resumed>(&heard->message);
  if (resumed != nullptr && !incident_since_launch_) step = resumed->step;
  if (step > told_) {
    told_ = step;
    failures_since_told_ = 0;
  }
}

void RunJudge::take(const Launch& launch) {
  rule(world_.writers() == 0, "two writers: {} of an older start may still write", world_.writers());
  rule(!up_, "it starts while a start is up");
  rule(launches_ == 0 || supervisors_launches_ == 0 || incident_since_launch_ || news_since_launch_,
       "it starts again for no reason");
  rule(launch.placement.ranks() == launch.layout.world(), "{} ranks are placed, and {} wanted",
       launch.placement.ranks(), launch.layout.world());
  rule(scenario_.global_batch % launch.layout.dp == 0, "the global batch is cut into {}", launch.layout.dp);
  for (const Host& host : launch.placement.hosts) {
    const auto found = std::ranges::find(world_.listed(), host.name, &Host::name);
    rule(found != world_.listed().end(), "{} is used, and not listed", host.name);
    if (broken_) return;
    rule(host.slots <= found->slots, "{} takes {} ranks in {} slots", host.name, host.slots, found->slots);
  }
  ++launches_;
  ++supervisors_launches_;
  ++launches_since_;
  const int most = (scenario_.policy.retries + 1) * (1 + supervisors_lost_) + news_since_;
  rule(launches_since_ <= most, "no end of it: {} starts bring nothing durable", launches_since_);
  up_ = true;
  just_launched_ = true;
  news_since_launch_ = false;
  incident_since_launch_ = false;
  ending_since_.reset();
}

void RunJudge::take(const SendAll& send) {
  if (!std::holds_alternative<telemetry::Kill>(send.message)) return;
  rule(incident_since_launch_ || stops_ > 1, "a start is ended, and no incident says why");
  if (!ending_since_) ending_since_ = world_.now();
  up_ = false;
}

void RunJudge::take(const EndLauncher&) {
  if (up_ && !recovering_since_ && !incident_since_launch_) recovering_since_ = world_.now();  // in order
  up_ = false;
  ending_since_.reset();
}

void RunJudge::take(const Write& write) {
  std::visit([&](const auto& line) { take(line); }, write.line);
}

void RunJudge::take(const Incident& incident) {
  ++incidents_;
  ++supervisors_incidents_;
  rule(!incident.action.empty() && !incident.message.empty(), "an incident without words");
  if (incident.kind == FailureKind::kSlow) note_news();
  if (incident.kind == FailureKind::kSlow || incident.kind == FailureKind::kSupervisor) return;
  ++failures_;
  ++failures_since_told_;
  rule(up_, "an incident of no start");
  rule(incident.detected_after_s >= 0, "found out {} s after it", incident.detected_after_s);
  incident_since_launch_ = true;
  if (!recovering_since_) recovering_since_ = world_.now();
  look_at_blame(incident);
}

// Where only one thing has gone wrong, it and nothing else is to blame.
void RunJudge::look_at_blame(const Incident& incident) {
  const bool of_its_own =
      incident.code == static_cast<int>(ExitCode::kStorage) || incident.code == static_cast<int>(ExitCode::kDiverged);
  if (of_its_own || world_.unstable() || world_.troubles_of_start() != 1 || world_.open().size() != 1) return;
  const OpenTrouble& trouble = world_.open().front();
  for (const int rank : incident.ranks) {
    rule(trouble.ranks.contains(rank), "rank {} is blamed for what happened to rank {} ({}: {})", rank,
         *trouble.ranks.begin(), failure_name(incident.kind), incident.message);
  }
  const bool missed = trouble.kind == Trouble::kKillKeeper && incident.kind == FailureKind::kFailed;  // at its end
  if (!trouble.quick || stops_ > 0 || missed) return;
  rule(!incident.ranks.empty(), "nobody is blamed for what happened to rank {}: {}", *trouble.ranks.begin(),
       incident.message);
  if (of_process(trouble.kind)) return;
  rule(trouble.kind == Trouble::kDropConnection || incident.host == trouble.host,
       "{} is blamed for what happened to {}", incident.host, trouble.host);
}

void RunJudge::take(const Recovery& recovery) {
  ++recoveries_;
  for (const double part : {recovery.end_s, recovery.wait_s, recovery.launch_s, recovery.load_s, recovery.repeat_s,
                            recovery.next_s, static_cast<double>(recovery.steps_lost)}) {
    rule(part >= 0, "a part of a recovery is {}", part);
  }
  rule(recovering_since_.has_value(), "a recovery of nothing");
  if (!recovering_since_) return;
  const double total = world_.now() - *recovering_since_;
  rule(std::abs(recovery.total_s() - total) < 1e-6, "the parts of a recovery add up to {} s, it took {} s",
       recovery.total_s(), total);
  recovering_since_.reset();
}

void RunJudge::take(const Finish& finish) {
  finish_ = finish;
  const ExitCode code = finish.code;
  rule(scenario_.ends.contains(code), "it ends with {}: {}", static_cast<int>(code), finish.text);
  rule(world_.writers() == 0 || code == ExitCode::kRequeue, "it ends, and {} ranks run on", world_.writers());
  const bool in_order = code == ExitCode::kDone || code == ExitCode::kPreempted || code == ExitCode::kInterrupted;
  rule(in_order || !finish.text.empty(), "it ends with {} and no word", static_cast<int>(code));
  rule(in_order || code == ExitCode::kRequeue || incident_since_launch_ || launches_ == 0 ||
           code == ExitCode::kRankLost || code == ExitCode::kDoesNotFit,
       "it ends with {}, and no incident says why", static_cast<int>(code));
  rule(in_order || !recovering_since_, "it ends, and a recovery is open");
  if (code == ExitCode::kDone) {
    rule(world_.durable() == scenario_.steps, "it is done at step {} of {}", world_.durable(), scenario_.steps);
  } else if (code == ExitCode::kNoProgress || code == ExitCode::kStorage) {
    rule(failures_since_told_ > scenario_.policy.retries, "it gives up after {} failures", failures_since_told_);
  } else if (code == ExitCode::kPreempted || code == ExitCode::kInterrupted) {
    rule(world_.durable() == world_.completed(), "stopped after step {}, of which {} are durable", world_.completed(),
         world_.durable());
    rule(stops_ > 0, "nobody asked it to stop");
  } else if (code == ExitCode::kRequeue) {
    rule(stops_ > 0, "nobody asked it to stop");
  } else if (code == ExitCode::kRankLost) {
    std::vector<Host> left = world_.listed();
    std::erase_if(left, [&](const Host& host) { return world_.was_ever_bad(host.name); });
    rule(!scenario_.choose(left), "it ends for want of hosts, and there are some");
  }
}

void RunJudge::look_at_reaction() {
  if (ending_since_) rule(world_.now() - *ending_since_ <= kEnding_s, "it takes for ever to end a start");
  if (!up_ || finish_ || std::exchange(just_launched_, false)) return;
  const PatiencePolicy& patience = scenario_.policy.patience;
  const double slow =
      std::max(patience.start.count, patience.most.count) + scenario_.policy.flight_wait.count + 10 * kQuick_s;
  for (const OpenTrouble& trouble : world_.open()) {
    const double passed = world_.now() - trouble.at;
    rule(passed <= (trouble.quick ? kQuick_s : slow), "no reaction for {:.1f} s to trouble {} of rank {}", passed,
         static_cast<int>(trouble.kind), *trouble.ranks.begin());
  }
}

void RunJudge::supervisor_lost() {
  up_ = false;
  ++supervisors_lost_;
  supervisors_launches_ = supervisors_incidents_ = 0;
  failures_since_told_ = 0;
  told_ = 0;
  ending_since_.reset();
  recovering_since_.reset();
}

void RunJudge::look_back(const Summary& summary) {
  rule(finish_.has_value(), "no end by {} s", world_.now());
  rule(summary.incidents == supervisors_incidents_, "{} incidents are summed up, {} were written", summary.incidents,
       supervisors_incidents_);
  rule(summary.launches == supervisors_launches_, "{} starts are summed up, there were {}", summary.launches,
       supervisors_launches_);
  rule(summary.useful_s >= 0 && summary.useful_s <= summary.elapsed_s, "useful for {} s of {} s", summary.useful_s,
       summary.elapsed_s);
  if (supervisors_lost_ > 0 || finish_->code != ExitCode::kDone) return;
  const double useful = static_cast<double>(scenario_.steps) * scenario_.step_s;
  const double unknown = 4 * scenario_.step_s * failures_;  // steps whose words were lost with a start
  rule(summary.useful_s < useful + 1e-6 && summary.useful_s > useful - unknown - 1e-6,
       "{} s were useful, {} s are said to be", useful, summary.useful_s);
}

}  // namespace trireme::supervisor
