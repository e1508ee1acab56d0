// What the rank processes of a simulated start do: load, steps, saves, their end.

#include <algorithm>

#include <fmt/format.h>

#include "supervision/simulated_world.h"

namespace trireme::supervisor {

using telemetry::Phase;

void SimulatedWorld::at_phase(int id, Phase phase, std::int64_t step) {
  Process& one = process(id);
  one.progress.phase = phase;
  one.progress.step = step;
  ++one.progress.advances;
  say(id, telemetry::Alive{.ranks = {one.progress}});
}

void SimulatedWorld::fail_rank(int id, int code, const std::string& text) {
  Process& one = process(id);
  if (!one.alive || one.stopped || one.ended_in_word) return;
  say(id, telemetry::RankEnded{.rank = one.rank, .code = code, .message = text});
  one.ended_in_word = true;
  after(0.02, [this, id, code] { end_process(id, 0, code); });
}

// Those that wait for a rank that is lost find out, sooner or later.
void SimulatedWorld::peer_lost() {
  if (!scenario_.victims_speak || !work_.joined) return;
  for (const int id : work_.ranks) {
    if (id < 0 || !process(id).alive || process(id).stuck) continue;
    within_start(dice_.between(0.02, 0.4), [this, id] { fail_rank(id, 88, "a peer is lost"); });
  }
}

void SimulatedWorld::join_if_all_there() {
  if (work_.joined || !std::ranges::all_of(work_.ranks, [this](int id) { return works(id); })) return;
  work_.joined = true;
  within_start(dice_.between(0.05, 0.3), [this] { load(); });
}

void SimulatedWorld::load() {
  constexpr int kPieces = 4;
  const double length = dice_.between(0.2, 1.5);
  for (const int id : work_.ranks) {
    for (int piece = 0; piece < kPieces; ++piece) {
      within_start(length * piece / kPieces, [this, id] {
        if (works(id)) at_phase(id, Phase::kLoad, 0);
      });
    }
  }
  within_start(length, [this] {
    if (!std::ranges::all_of(work_.ranks, [this](int id) { return works(id); })) return;
    work_.loaded = true;
    work_.completed = durable_;
    say(work_.ranks[0], telemetry::Resumed{.step = durable_, .continues = durable_ > 0});
    for (const int id : work_.ranks) at_phase(id, Phase::kIdle, durable_ + 1);
    begin_step();
  });
}

// Between two steps: the leader's word on what comes next.
void SimulatedWorld::begin_step() {
  if (process(work_.ranks[0]).told_to_stop) return end_in_order(work_.completed < scenario_.steps);
  if (work_.completed >= scenario_.steps) return end_in_order(false);
  const std::int64_t step = work_.completed + 1;
  if (step == scenario_.nan_step || std::exchange(nan_next_, false)) {
    for (const int id : work_.ranks) fail_rank(id, 72, fmt::format("the loss of step {} is nan", step));
    return;
  }
  work_.arrived = 0;
  for (const int id : work_.ranks) compute(id, step, 0);
  within_start(scenario_.comm_deadline_s, [this, step] {
    if (work_.completed + 1 != step || work_.ending) return;
    for (const int id : work_.ranks) {
      if (works(id)) fail_rank(id, 86, "a wait has passed its deadline");
    }
  });
}

void SimulatedWorld::compute(int id, std::int64_t step, int part) {
  if (!works(id)) return;
  if (part == 1 && step == scenario_.crash_step && process(id).rank == static_cast<int>(work_.ranks.size()) / 2) {
    return end_process(id, 11, 0);
  }
  if (part == 2) {
    at_phase(id, Phase::kReduce, step);
    if (++work_.arrived == std::ssize(work_.ranks)) {
      within_start(scenario_.step_s * 0.05, [this] { finish_step(); });
    }
    return;
  }
  at_phase(id, part == 0 ? Phase::kForward : Phase::kBackward, step);
  const double length = scenario_.step_s * 0.45 * dice_.between(0.97, 1.03) * host_of(process(id)).slowness;
  within_start(length, [this, id, step, part] { compute(id, step, part + 1); });
}

void SimulatedWorld::finish_step() {
  if (!std::ranges::all_of(work_.ranks, [this](int id) { return works(id); })) return;
  const std::int64_t step = ++work_.completed;
  for (const int id : work_.ranks) {
    const double compute_s = scenario_.step_s * 0.9 * host_of(process(id)).slowness * dice_.between(0.98, 1.02);
    say(id, telemetry::StepDone{
                .rank = process(id).rank, .step = step, .step_s = scenario_.step_s, .compute_s = compute_s});
    at_phase(id, Phase::kIdle, step + 1);
  }
  if (step % scenario_.save_every == 0 && step < scenario_.steps) save(step);
  begin_step();
}

// Durable some steps later, if all ranks that write it live until then.
void SimulatedWorld::save(std::int64_t step) {
  within_start(scenario_.step_s * dice_.between(0.2, 2.5), [this, step] {
    if (!std::ranges::all_of(work_.ranks, [this](int id) { return process(id).alive && !process(id).stopped; })) return;
    if (now_ < disk_full_until_) return fail_rank(work_.ranks[0], 79, fmt::format("step {} is not saved", step));
    durable_ = std::max(durable_, step);
    note(fmt::format("world: step {} is durable", step));
    within_start(dice_.between(0, 0.2), [this, step] { say(work_.ranks[0], telemetry::Saved{.step = step}); });
  });
}

void SimulatedWorld::end_in_order(bool interrupted) {
  work_.ending = true;
  const bool saves = scenario_.saves_when_stopped || !interrupted;
  for (const int id : work_.ranks) at_phase(id, Phase::kFinish, work_.completed);
  within_start(dice_.between(0.2, 3), [this, interrupted, saves] {
    if (!std::ranges::all_of(work_.ranks, [this](int id) { return works(id); })) return;
    if (now_ < disk_full_until_) return fail_rank(work_.ranks[0], 79, "the last step is not saved");
    const int leader = work_.ranks[0];
    if (saves) {
      durable_ = std::max(durable_, work_.completed);
      note(fmt::format("world: step {} is durable at the end", durable_));
      say(leader, telemetry::Saved{.step = durable_});
    }
    say(leader, telemetry::Outcome{.text = "", .json = nullptr, .interrupted = interrupted});
    const double longest = dice_.chance(0.3) ? 4 : 0.5;
    for (const int id : work_.ranks) {
      within_start(dice_.between(0.01, longest), [this, id] { fail_rank(id, 0, ""); });
    }
  });
}

}  // namespace trireme::supervisor
