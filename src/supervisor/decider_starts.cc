// How a decider starts a run, moves it and ends it.

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "supervisor/decider_state.h"

namespace trireme::supervisor {
namespace {

std::vector<int> stages_of(const plan::Layout& layout) {
  std::vector<int> stages;
  for (int rank = 0; rank < layout.world(); ++rank) stages.push_back(plan::coordinates_of(layout, rank).pp);
  return stages;
}

}  // namespace

void Decider::State::launch(ReshapeChoice choice) {
  stage = Stage::kUp;
  ++launches;
  start.emplace(choice, now);
  stragglers.emplace(policy.straggler, stages_of(choice.layout));
  patience->restart();
  open_steps.clear();
  connected = resumed = grow = false;
  launcher_ended.reset();
  clean_since.reset();
  suspicions.clear();
  to_answer.clear();
  flight_until.reset();
  stopping.reset();
  stop_heard.reset();
  outcome.reset();
  tally.launched(plan::describe(choice.layout), now);
  actions.push_back(Launch{.layout = choice.layout, .placement = choice.placement});
}

// What was chosen may no longer be there.
void Decider::State::launch_next() {
  if (const std::optional<ReshapeChoice> choice = choose_now()) return launch(*choice);
  finish({ExitCode::kRankLost, "no layout of this run is legal on the hosts that are listed by now"});
}

// On those that may be used, else on those that were left out but are there, else on every spare too.
std::optional<ReshapeChoice> Decider::State::choose_now() {
  std::optional<ReshapeChoice> choice = choose(membership.available());
  if (!choice && membership.bring_back_those_present()) choice = choose(membership.available());
  if (!choice) choice = choose(membership.all_present());  // one that is no longer listed leaves no place to a spare
  return choice;
}

// A new durable step: whatever failed before it did not stop the run.
void Decider::State::note_progress() {
  if (tally.durable() <= durable_before) return;
  durable_before = tally.durable();
  fruitless.clear();
  // The word of it came after the verdict.
  const ExitCode code = next.finish.code;
  const bool gave_up = code == ExitCode::kNoProgress || code == ExitCode::kStorage;
  if (stage == Stage::kEnding && !next.choice && gave_up && !asked_to_stop) next.choice = choose_now();
}

// Rank processes too: one whose keeper is lost has nobody else to end it.
void Decider::State::end_all() {
  for (const bool keepers : {true, false}) actions.push_back(SendAll{.message = telemetry::Kill{}, .keepers = keepers});
}

void Decider::State::stop(StopReason reason) {
  const bool outside = reason == StopReason::kPreempted || reason == StopReason::kUser;
  if (stopping && !outside) return;
  if (outside) {
    actions.push_back(
        Say{.text = fmt::format("asked to stop: saves, then ends, within {}; a second request ends at once",
                                format_seconds(policy.grace))});
  }
  if (!stopping) actions.push_back(SendAll{.message = telemetry::Stop{}});
  stopping = reason;
  stop_until = later(now, policy.grace);
}

void Decider::State::ended_in_order() {
  const bool whole = !outcome || !outcome->interrupted;
  actions.push_back(EndLauncher{});
  if (whole || !stopping) {
    return finish({whole ? ExitCode::kDone : ExitCode::kInterrupted, ""});
  }
  if (*stopping == StopReason::kPreempted || *stopping == StopReason::kUser) {
    if (!policy.saves) return finish({ExitCode::kRequeue, "stopped; this run writes no checkpoints"});
    const bool preempted = *stopping == StopReason::kPreempted;
    return finish(
        {preempted ? ExitCode::kPreempted : ExitCode::kInterrupted,
         fmt::format("stopped in order, step {} is saved: the same command goes on from there", tally.durable())});
  }
  tally.failed(plan::describe(start->choice().layout), now);  // what the way to another layout costs
  tally.gone(now);
  launch_next();
}

void Decider::State::consider_growing() {
  if (stage != Stage::kUp || !policy.saves) return;
  const std::optional<ReshapeChoice> better = choose(membership.available());
  const ReshapeChoice& present = start->choice();
  const bool before = grow;
  grow = better && (better->layout.world() > present.layout.world() ||
                    (better->layout != present.layout && better->predicted_step_s < present.predicted_step_s));
  if (grow && !before) {
    actions.push_back(Say{.text = fmt::format("{} can be used: the run goes on there after the next checkpoint",
                                              better->placement.text())});
  }
}

void Decider::State::look_for_stragglers(std::int64_t step) {
  const OpenStep done = open_steps[step];
  open_steps.erase(open_steps.begin(), open_steps.upper_bound(step));
  for (const Straggler& slow : stragglers->add_step(step, done.compute_s, done.took)) {
    const std::string host = start->host_of(slow.rank);
    Failing failing;
    failing.kind = FailureKind::kSlow;
    failing.ranks = {slow.rank};
    failing.hosts = {host};
    failing.message = fmt::format("rank {} takes {:.2f} times as long as {} since step {}", slow.rank, slow.factor,
                                  slow.compared_with, slow.since_step);
    Incident incident = incident_of(failing);
    incident.action = "report";
    if (policy.on_straggler == OnStraggler::kEvict && !stopping && policy.saves && !alone()) {
      Membership without = membership;
      without.leave_out(host, now);
      if (choose(without.available())) {
        incident.action = fmt::format("leave out {}", host);
        membership.leave_out(host, now);
        stop(StopReason::kLeaveOut);
      }
    }
    actions.push_back(Say{.warning = true, .text = fmt::format("{}; {}", incident.message, incident.action)});
    record(incident);
  }
}

void Decider::State::record(const Incident& incident) {
  ++incidents;
  actions.push_back(Write{incident});
}

void Decider::State::write(const std::optional<Recovery>& recovery) {
  if (recovery) actions.push_back(Write{*recovery});
}

void Decider::State::finish(Finish finish) {
  stage = Stage::kFinished;
  write(tally.finished(now));  // what no step will complete any more
  actions.push_back(std::move(finish));
}

}  // namespace trireme::supervisor
