#include "supervision/simulated_world.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/random.h"

namespace trireme::supervisor {

using telemetry::Message;
using telemetry::Phase;

double Dice::between(double low, double high) {
  return low + (high - low) * static_cast<double>(random_uniform({seed_, 1}, drawn_++));
}

int Dice::below(int count) { return std::min(static_cast<int>(between(0, count)), count - 1); }

// As asked, else the widest that the global batch can be cut for.
std::optional<ReshapeChoice> Scenario::choose(const std::vector<Host>& available) const {
  int slots = 0;
  for (const Host& host : available) slots += host.slots;
  for (int dp = ranks; dp >= (reshapes ? 1 : ranks); --dp) {
    if (dp > slots || global_batch % dp != 0) continue;
    plan::Layout layout;
    layout.dp = dp;
    return ReshapeChoice{.layout = layout, .placement = place(available, dp), .predicted_step_s = 8.0 / dp};
  }
  return std::nullopt;
}

SimulatedWorld::SimulatedWorld(const Scenario& scenario) : scenario_(scenario), dice_(scenario.seed) {
  listed_ = scenario.hosts;
  for (const Host& host : listed_) hosts_.push_back({.name = host.name});
  for (const PlantedTrouble& trouble : scenario.troubles) {
    after(trouble.at, [this, trouble] { plant(trouble); });
  }
}

void SimulatedWorld::after(double seconds, std::function<void()> what) {
  events_.push({now_ + seconds, order_++, std::move(what)});
}

void SimulatedWorld::within_start(double seconds, std::function<void()> what) {
  after(seconds, [this, start = incarnation_, what = std::move(what)] {
    if (start == incarnation_) what();
  });
}

void SimulatedWorld::run_next() {
  const Entry entry = events_.top();
  events_.pop();
  now_ = std::max(now_, entry.at);
  entry.what();
}

double SimulatedWorld::delay() { return dice_.chance(0.02) ? dice_.between(0.05, 0.3) : dice_.between(0.0005, 0.02); }

int SimulatedWorld::host_index(const std::string& name) {
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    if (hosts_[i].name == name) return static_cast<int>(i);
  }
  hosts_.push_back({.name = name});
  return static_cast<int>(hosts_.size()) - 1;
}

bool SimulatedWorld::works(int id) {
  if (id < 0) return false;
  const Process& one = process(id);
  return one.alive && !one.stopped && !one.stuck && !one.ended_in_word;
}

int SimulatedWorld::writers() const {
  return static_cast<int>(std::ranges::count_if(processes_, [](const Process& one) {
    // A stopped one finds its fence passed before it could write again.
    return !one.keeper && one.alive && !one.stopped && one.accepted && !one.ended_in_word;
  }));
}

// ---- What a supervisor does.

void SimulatedWorld::launch(const Launch& launch) {
  launch_ = launch;
  const int before = incarnation_++;
  served_ = true;
  for (std::size_t id = 0; id < processes_.size(); ++id) {
    if (processes_[id].incarnation == before && processes_[id].alive) supervisor_is_gone_for(static_cast<int>(id));
  }
  open_.clear();
  troubles_of_start_ = 0;
  unstable_ = false;
  launcher_ = {.running = true, .aborting = false, .late = std::exchange(late_end_, false), .code = 0};
  launcher_.waiting_for = launch.layout.world();
  work_ = {};
  work_.ranks.assign(static_cast<std::size_t>(launch.layout.world()), -1);
  std::map<int, std::vector<int>> by_host;
  for (int rank = 0; rank < launch.layout.world(); ++rank) {
    by_host[host_index(launch.placement.host_of(rank))].push_back(rank);
  }
  for (const auto& [host, ranks] : by_host) {
    within_start(dice_.between(0.1, 2), [this, host = host, ranks = ranks] { start_host(host, ranks); });
  }
}

void SimulatedWorld::send_all(const SendAll& send) {
  for (std::size_t id = 0; id < processes_.size(); ++id) {
    const Process& one = processes_[id];
    if (one.incarnation != incarnation_ || one.keeper != send.keepers || !one.accepted) continue;
    hand_down(static_cast<int>(id), send.message);
  }
}

// Its own group dies at once; what it has started elsewhere is told so, or is left alone.
void SimulatedWorld::end_launcher() {
  launcher_.running = false;
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    const int id = static_cast<int>(i);
    if (processes_[i].incarnation != incarnation_ || !processes_[i].alive) continue;
    if (scenario_.local) {
      end_process(id, 9, 0);
    } else if (processes_[i].keeper && dice_.chance(0.5)) {
      after(dice_.between(0.1, 1), [this, id] { end_by_keeper(id); });
    }
  }
}

void SimulatedWorld::probe(const std::string& host) {
  after(dice_.between(0.1, 2), [this, host] {
    const bool ok = hosts_[static_cast<std::size_t>(host_index(host))].reachable() || dice_.chance(0.02);
    tell(Probed{.host = host, .ok = ok});
  });
}

void SimulatedWorld::supervisor_gone() {
  served_ = false;
  for (std::size_t id = 0; id < processes_.size(); ++id) {
    if (processes_[id].alive) supervisor_is_gone_for(static_cast<int>(id));
  }
  launcher_.running = false;
  open_.clear();
}

// Its connection was closed at the other end.
void SimulatedWorld::supervisor_is_gone_for(int id) {
  Process& one = process(id);
  one.connected = false;
  if (!host_of(one).reachable() || dice_.chance(0.1)) return;  // it has to find out for itself
  after(delay(), [this, id] { process(id).keeper ? end_by_keeper(id) : end_process(id, 0, 88); });
}

// ---- Network.

void SimulatedWorld::say(int id, const Message& message) {
  Process& one = process(id);
  if (!one.connected || !one.alive || one.stopped) return;
  if (host_of(one).cut_up > 0) {
    one.held_up.push_back(message);
  } else {
    arrive(id, message);
  }
}

void SimulatedWorld::arrive(int id, std::optional<Message> message) {
  Process& one = process(id);
  one.last_up = std::max(now_ + delay(), one.last_up + 1e-6);
  after(one.last_up - now_, [this, id, message = std::move(message)] { received(id, message); });
}

void SimulatedWorld::received(int id, const std::optional<Message>& message) {
  Process& one = process(id);
  if (!served_ || one.incarnation != incarnation_) {
    if (one.alive && one.connected) supervisor_is_gone_for(id);
    return;
  }
  if (!message) {
    if (one.accepted) tell(PeerGone{id + 1});
    return;
  }
  one.accepted = true;
  if (host_of(one).cut_down == 0) one.last_heard = now_ + delay();  // it is answered
  tell(Heard{id + 1, *message});
}

void SimulatedWorld::hand_down(int id, const Message& message) {
  Process& one = process(id);
  if (!one.connected || !one.alive) return;
  if (host_of(one).cut_down > 0) {
    one.held_down.push_back(message);
    return;
  }
  one.last_down = std::max(now_ + delay(), one.last_down + 1e-6);
  after(one.last_down - now_, [this, id, message] { hears(id, message); });
}

void SimulatedWorld::hears(int id, const Message& message) {
  Process& one = process(id);
  if (!one.alive || one.stopped) return;
  if (std::holds_alternative<telemetry::Kill>(message)) {
    one.keeper ? end_by_keeper(id) : end_process(id, 0, 88);
  } else if (std::holds_alternative<telemetry::Stop>(message)) {
    one.told_to_stop = true;
  } else if (std::holds_alternative<telemetry::AskFlightRecords>(message)) {
    answer_with_records(id);
  }
}

void SimulatedWorld::answer_with_records(int id) {
  const Process& one = process(id);
  const bool waits = !one.stuck && work_.loaded && one.progress.phase == Phase::kReduce;
  telemetry::OperationRecord record;
  record.sequence = one.progress.step - (waits ? 0 : 1);
  record.axis = "data";
  record.operation = "sum";
  for (int rank = 0; rank < launch_->layout.world(); ++rank) record.ranks.push_back(rank);
  if (!waits) record.completed = Seconds{now_};
  say(id, telemetry::FlightRecords{.rank = one.rank, .records = {record}});
}

void SimulatedWorld::cut(int host, bool up, bool down, double lasting) {
  SimulatedHost& one = hosts_[static_cast<std::size_t>(host)];
  one.cut_up += up ? 1 : 0;
  one.cut_down += down ? 1 : 0;
  after(lasting, [this, host, up, down] { heal(host, up, down); });
}

// What was held back comes in its order.
void SimulatedWorld::heal(int host, bool up, bool down) {
  SimulatedHost& healed = hosts_[static_cast<std::size_t>(host)];
  healed.cut_up -= up ? 1 : 0;
  healed.cut_down -= down ? 1 : 0;
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    Process& one = processes_[i];
    if (one.host != host) continue;
    const int id = static_cast<int>(i);
    if (healed.cut_up == 0) {
      for (const Message& message : std::exchange(one.held_up, {})) arrive(id, message);
      if (std::exchange(one.held_close, false)) arrive(id, std::nullopt);
    }
    if (healed.cut_down == 0) {
      for (const Message& message : std::exchange(one.held_down, {})) hand_down(id, message);
    }
  }
}

// ---- Processes.

void SimulatedWorld::start_host(int host, std::vector<int> ranks) {
  if (!launcher_.running || launcher_.aborting) return;
  if (!hosts_[static_cast<std::size_t>(host)].reachable()) {
    unstable_ = true;
    return within_start(dice_.between(0.5, 5), [this] { abort_launch(255); });
  }
  if (now_ < bad_starts_until_ && dice_.chance(0.5)) {
    unstable_ = true;
    if (dice_.chance(0.2)) return;  // it waits for ever
    return abort_launch(1);
  }
  for (int rank : ranks) {
    const int keeper = spawn(rank, host, true);
    const int worker = spawn(rank, host, false);
    process(keeper).partner = worker;
    process(worker).partner = keeper;
    connect(keeper);
    after(dice_.between(0.01, 0.2), [this, worker] {
      if (!process(worker).alive) return;
      connect(worker);
      if (process(worker).incarnation != incarnation_) return;
      work_.ranks[static_cast<std::size_t>(process(worker).rank)] = worker;
      join_if_all_there();
    });
  }
}

int SimulatedWorld::spawn(int rank, int host, bool keeper) {
  Process one;
  one.incarnation = incarnation_;
  one.rank = rank;
  one.host = host;
  one.keeper = keeper;
  one.last_heard = now_;
  one.progress.rank = rank;
  processes_.push_back(std::move(one));
  return static_cast<int>(processes_.size()) - 1;
}

void SimulatedWorld::connect(int id) {
  Process& one = process(id);
  one.connected = true;
  one.last_heard = now_;
  telemetry::Hello hello;
  hello.incarnation = one.incarnation;
  hello.keeper = one.keeper;
  hello.ranks = {one.rank};
  hello.host = host_of(one).name;
  say(id, hello);
  after(dice_.between(0.1, 0.5), [this, id] { beat(id); });
  watch_fence(id);
}

void SimulatedWorld::beat(int id) {
  const Process& one = process(id);
  if (!one.alive || one.stopped) return;
  say(id, one.keeper ? telemetry::Alive{} : telemetry::Alive{.ranks = {one.progress}});
  after(telemetry::kAliveEvery_s, [this, id] { beat(id); });
}

void SimulatedWorld::watch_fence(int id) {
  const Process& one = process(id);
  if (!one.alive || one.stopped) return;
  const double left = one.last_heard + scenario_.fence_s - now_;
  if (left > 1e-9) return after(left, [this, id] { watch_fence(id); });
  one.keeper ? end_by_keeper(id) : end_process(id, 0, 88);
}

void SimulatedWorld::end_process(int id, int signal, int code) {
  Process& one = process(id);
  if (!one.alive) return;
  const bool badly = signal != 0 || code != 0;
  if (one.connected && host_of(one).up) {
    if (host_of(one).cut_up > 0) {
      one.held_close = true;
    } else {
      arrive(id, std::nullopt);
    }
  }
  one.alive = false;
  const int partner = one.partner;
  if (one.keeper) {
    after(dice_.between(0.02, 0.3), [this, id, badly] { keeper_ended(id, badly); });
    if (scenario_.dies_with_keeper) after(0.01, [this, partner] { end_process(partner, 9, 0); });
    return;
  }
  if (badly && one.incarnation == incarnation_) peer_lost();
  after(dice_.between(0.005, 0.05), [this, partner, signal, code] {
    if (!process(partner).alive) return;
    say(partner, telemetry::ProcessEnded{.signal = signal, .code = code});
    after(0.02, [this, partner, code, signal] { end_process(partner, 0, signal != 0 ? 128 + signal : code); });
  });
}

// Told to, or the supervisor is gone.
void SimulatedWorld::end_by_keeper(int keeper) {
  if (!process(keeper).alive) return;
  const int partner = process(keeper).partner;
  if (partner >= 0 && process(partner).alive) return end_process(partner, 9, 0);
  end_process(keeper, 0, 1);
}

void SimulatedWorld::keeper_ended(int id, bool badly) {
  if (process(id).incarnation != incarnation_ || !launcher_.running) return;
  --launcher_.waiting_for;
  // Not before the longest delay of a message: else who died first could not be told from what is heard.
  if (badly) within_start(dice_.between(0.3, 1), [this] { abort_launch(1); });
  end_of_launcher_if_due();
}

void SimulatedWorld::abort_launch(int code) {
  if (!launcher_.running || launcher_.aborting) return;
  launcher_.aborting = true;
  launcher_.code = code;
  int there = 0;
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    const Process& one = processes_[i];
    if (one.incarnation != incarnation_ || !one.keeper || !one.alive ||
        !hosts_[static_cast<std::size_t>(one.host)].reachable())
      continue;
    ++there;
    const int id = static_cast<int>(i);
    after(dice_.between(0.01, 0.2), [this, id] { end_by_keeper(id); });
  }
  launcher_.waiting_for = there;
  end_of_launcher_if_due();
}

void SimulatedWorld::end_of_launcher_if_due() {
  if (launcher_.waiting_for > 0 || !launcher_.running) return;
  int code = launcher_.aborting ? launcher_.code : 0;
  if (code == 0 && std::exchange(wrong_end_, false)) code = 1;
  within_start(launcher_.late ? dice_.between(5, 20) : dice_.between(0, 0.3), [this, code] {
    if (!std::exchange(launcher_.running, false)) return;
    tell(LauncherEnded{.signal = 0, .code = code});
  });
}

}  // namespace trireme::supervisor
