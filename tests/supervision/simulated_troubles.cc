// What goes wrong in a simulated world.

#include <algorithm>

#include <fmt/format.h>

#include "supervision/simulated_world.h"

namespace trireme::supervisor {

void SimulatedWorld::opened(OpenTrouble trouble) {
  ++troubles_of_start_;
  open_.push_back(std::move(trouble));
}

void SimulatedWorld::plant(const PlantedTrouble& trouble) {
  note(fmt::format("world: trouble {} at {}, for {:.3g} s", static_cast<int>(trouble.kind), trouble.where,
                   trouble.lasting));
  switch (trouble.kind) {
    case Trouble::kKillRank:
    case Trouble::kKillKeeper:
    case Trouble::kKillBoth:
    case Trouble::kStopRank:
    case Trouble::kStickRank:
    case Trouble::kDropConnection:
      return plant_process_trouble(trouble);
    case Trouble::kSlowHost:
    case Trouble::kLoseHost:
    case Trouble::kCutHost:
    case Trouble::kCutUp:
    case Trouble::kCutDown:
    case Trouble::kUnlistHost:
    case Trouble::kListHost:
      return plant_host_trouble(trouble);
    case Trouble::kFullDisk:
      disk_full_until_ = now_ + trouble.lasting;
      return;
    case Trouble::kNan:
      nan_next_ = true;
      return;
    case Trouble::kBadStarts:
      bad_starts_until_ = now_ + trouble.lasting;
      return;
    case Trouble::kLateEnd:
      late_end_ = true;
      return;
    case Trouble::kWrongEnd:
      wrong_end_ = true;
      return;
    case Trouble::kLoseSupervisor:
      return lose_supervisor();
    case Trouble::kPreempt:
      return tell(StopAsked{.preempted = true});
    case Trouble::kInterrupt:
      return tell(StopAsked{.preempted = false});
  }
}

void SimulatedWorld::plant_process_trouble(const PlantedTrouble& trouble) {
  std::vector<int> workers;
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    const Process& one = processes_[i];
    if (one.incarnation == incarnation_ && !one.keeper && one.alive && !one.stopped)
      workers.push_back(static_cast<int>(i));
  }
  if (workers.empty()) return;
  const int worker = workers[static_cast<std::size_t>(trouble.where) % workers.size()];
  const int keeper = process(worker).partner;
  const std::string host = host_of(process(worker)).name;
  const bool idle = process(worker).ended_in_word;
  const bool quick = process(worker).accepted && (keeper < 0 || process(keeper).accepted) && work_.joined;
  const auto open = [&](bool at_once) {
    if (idle) {
      unstable_ = true;
      ++troubles_of_start_;
    } else {
      opened({trouble.kind, now_, {process(worker).rank}, host, at_once && quick});
    }
  };
  switch (trouble.kind) {
    case Trouble::kKillRank:
      open(true);
      return end_process(worker, 9, 0);
    case Trouble::kKillKeeper:
      open(true);
      return end_process(keeper, 9, 0);
    case Trouble::kKillBoth:
      open(true);
      end_process(keeper, 9, 0);
      return end_process(worker, 9, 0);
    case Trouble::kStopRank:
      open(false);
      process(worker).stopped = true;
      return;
    case Trouble::kStickRank:
      open(false);
      process(worker).stuck = true;
      return;
    default:
      open(true);
      arrive(worker, std::nullopt);
      return supervisor_is_gone_for(worker);
  }
}

void SimulatedWorld::plant_host_trouble(const PlantedTrouble& trouble) {
  std::vector<Host> hosts = listed_;
  const auto at = hosts.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(trouble.where) % hosts.size());
  const int index = host_index(at->name);
  if (trouble.kind == Trouble::kListHost) {
    hosts.push_back({.name = fmt::format("more{}", hosts_.size()), .slots = 1 + trouble.where % 2});
    return list_hosts(std::move(hosts));
  }
  if (trouble.kind == Trouble::kUnlistHost) {
    const Host one = *at;
    if (hosts.size() < 2) return;
    hosts.erase(at);
    if (std::ranges::all_of(hosts, &Host::spare)) return;
    list_hosts(std::move(hosts));
    after(trouble.lasting, [this, one] {
      std::vector<Host> again = listed_;
      again.push_back(one);
      list_hosts(std::move(again));
    });
    return;
  }
  if (trouble.kind == Trouble::kSlowHost) {
    hosts_[static_cast<std::size_t>(index)].slowness = 2.5;
    return;
  }
  if (!hosts_[static_cast<std::size_t>(index)].reachable()) return;
  std::set<int> ranks;
  bool quick = work_.joined;
  for (const Process& one : processes_) {
    if (one.incarnation != incarnation_ || one.host != index || one.ended_in_word) continue;
    if (one.alive && !one.keeper) ranks.insert(one.rank);
    quick = quick && one.accepted;
  }
  // Who is alone cannot be told from a supervisor that is.
  quick = quick && std::ssize(ranks) < std::ssize(work_.ranks);
  bad_hosts_.insert(at->name);
  if (!ranks.empty()) {
    // A short silence is no loss.
    const bool long_enough = trouble.lasting > 2 * scenario_.policy.lost_after.count + 3;
    if (long_enough || trouble.kind == Trouble::kLoseHost) {
      opened({trouble.kind, now_, ranks, at->name, quick && trouble.kind != Trouble::kCutDown});
    } else {
      ++troubles_of_start_;
      unstable_ = true;
    }
  }
  if (trouble.kind == Trouble::kLoseHost) return lose_host(index, trouble.lasting);
  cut(index, trouble.kind != Trouble::kCutDown, trouble.kind != Trouble::kCutUp, trouble.lasting);
  if (!ranks.empty()) within_start(dice_.between(4, 20), [this] { abort_launch(1); });
}

// Without a word. When it is back, it knows of no connection.
void SimulatedWorld::lose_host(int host, double lasting) {
  hosts_[static_cast<std::size_t>(host)].up = false;
  std::vector<int> lost;
  bool worked = false;
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    Process& one = processes_[i];
    if (one.host != host || !one.alive) continue;
    one.alive = false;
    worked = worked || (one.incarnation == incarnation_ && !one.keeper);
    lost.push_back(static_cast<int>(i));
  }
  if (worked) {
    within_start(dice_.between(2, 20), [this] { abort_launch(1); });
    peer_lost();
  }
  after(lasting, [this, host, lost] {
    hosts_[static_cast<std::size_t>(host)].up = true;
    for (const int id : lost) arrive(id, std::nullopt);
  });
}

void SimulatedWorld::list_hosts(std::vector<Host> hosts) {
  if (hosts == listed_) return;
  listed_ = std::move(hosts);
  tell(HostsListed{listed_});
}

}  // namespace trireme::supervisor
