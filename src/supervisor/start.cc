#include "supervisor/start.h"

#include <algorithm>

namespace trireme::supervisor {
Start::Start(ReshapeChoice choice, Seconds now)
    : choice_(std::move(choice)), ranks_(static_cast<std::size_t>(choice_.layout.world())), last_advance_(now) {
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    ranks_[rank].progress.rank = static_cast<int>(rank);
    ranks_[rank].last_advance = now;
  }
}

bool Start::hello(int peer, const telemetry::Hello& hello, Seconds now) {
  for (int rank : hello.ranks) {
    if (!knows(rank)) return false;
    const RankView& view = ranks_[static_cast<std::size_t>(rank)];
    if (hello.keeper ? view.keeper.has_value() : view.connected) return false;
  }
  for (int rank : hello.ranks) {
    RankView& view = ranks_[static_cast<std::size_t>(rank)];
    if (hello.keeper) {
      view.keeper = peer;
    } else {
      view.connected = true;
    }
    got_on(rank, now);
  }
  peers_[peer] = {.keeper = hello.keeper, .ranks = hello.ranks, .host = hello.host, .last_heard = now};
  return true;
}

void Start::heard(int peer, Seconds now) {
  const auto found = peers_.find(peer);
  if (found != peers_.end()) found->second.last_heard = now;
}

Seconds Start::last_heard() const {
  Seconds last;
  for (const auto& [id, peer] : peers_) {
    if (!peer.gone) last = std::max(last, peer.last_heard);
  }
  return last;
}

void Start::rest(Seconds now) {
  for (auto& [id, peer] : peers_) peer.last_heard = now;
  for (RankView& view : ranks_) view.last_advance = now;
  last_advance_ = now;
}

void Start::got_on(int rank, Seconds now) {
  ranks_[static_cast<std::size_t>(rank)].last_advance = now;
  last_advance_ = now;
}

void Start::step_done(int rank, std::int64_t step, Seconds now) {
  telemetry::RankProgress& progress = ranks_[static_cast<std::size_t>(rank)].progress;
  if (progress.step <= step) {
    progress.step = step + 1;
    progress.phase = telemetry::Phase::kForward;
    progress.micro_batch = -1;
  }
  got_on(rank, now);
}

void Start::last_known(const telemetry::RankProgress& progress) {
  if (knows(progress.rank)) ranks_[static_cast<std::size_t>(progress.rank)].progress = progress;
}

bool Start::progress(const telemetry::RankProgress& progress, Seconds now) {
  if (!knows(progress.rank)) return false;
  RankView& view = ranks_[static_cast<std::size_t>(progress.rank)];
  const bool advanced = progress.advances > view.progress.advances;
  view.progress = progress;
  if (advanced) got_on(progress.rank, now);
  return advanced;
}

bool Start::all_connected() const {
  return std::ranges::all_of(ranks_, [](const RankView& view) { return view.connected; });
}

bool Start::all_clean() const {
  return std::ranges::all_of(ranks_, [](const RankView& view) { return view.clean(); });
}

bool Start::all_gone(Seconds now) const {
  if (now.count >= gone_at_the_latest().count) return true;
  return std::ranges::all_of(
      ranks_, [&](const RankView& view) { return view.process_ended || (!view.keeper && !view.connected); });
}

Seconds Start::gone_at_the_latest() const {
  Seconds last{0};
  for (const auto& [id, peer] : peers_) last.count = std::max(last.count, peer.last_heard.count);
  return {last.count + telemetry::kFence_s + kFenceMargin_s};
}

telemetry::Phase Start::phase() const {
  const RankView* behind = nullptr;
  for (const RankView& view : ranks_) {
    if (view.ended) continue;
    if (behind == nullptr || std::pair(view.progress.step, view.progress.advances) <
                                 std::pair(behind->progress.step, behind->progress.advances)) {
      behind = &view;
    }
  }
  return behind == nullptr ? telemetry::Phase::kFinish : behind->progress.phase;
}

std::int64_t Start::step() const {
  std::int64_t step = 0;
  for (const RankView& view : ranks_) step = std::max(step, view.progress.step);
  return step;
}

std::vector<int> Start::ranks_that_run_on() const {
  std::vector<int> running;
  for (int rank = 0; rank < ranks(); ++rank) {
    if (!ranks_[static_cast<std::size_t>(rank)].clean()) running.push_back(rank);
  }
  return std::ssize(running) == ranks() ? std::vector<int>{} : running;
}

std::vector<std::string> Start::silent_hosts(Seconds since) const {
  std::map<std::string, Seconds> heard;
  std::set<std::string> closed;
  for (const auto& [id, peer] : peers_) {
    if (peer.gone) {  // in order, or it is looked into
      closed.insert(peer.host);
      continue;
    }
    const auto [place, fresh] = heard.try_emplace(peer.host, peer.last_heard);
    if (!fresh) place->second.count = std::max(place->second.count, peer.last_heard.count);
  }
  std::vector<std::string> silent;
  for (const auto& [host, last] : heard) {
    if (last.count < since.count) silent.push_back(host);
  }
  const bool others_closed =
      std::ranges::any_of(closed, [&](const std::string& host) { return !heard.contains(host); });
  return silent.size() == heard.size() && !others_closed ? std::vector<std::string>{} : silent;
}

std::vector<int> Start::stopped_ranks(Seconds since) const {
  std::vector<int> stopped;
  for (const auto& [id, peer] : peers_) {
    if (peer.keeper || peer.gone || peer.last_heard >= since) continue;
    for (const int rank : peer.ranks) {
      const RankView& view = ranks_[static_cast<std::size_t>(rank)];
      if (!view.ended && !view.process_ended && view.keeper && peers_.at(*view.keeper).last_heard >= since) {
        stopped.push_back(rank);
      }
    }
  }
  return stopped;
}

std::vector<std::string> Start::hosts_not_heard() const {
  std::vector<std::string> hosts;
  for (const Host& host : choice_.placement.hosts) {
    const bool heard = std::ranges::any_of(ranks_of(host.name), [this](int rank) {
      const RankView& view = ranks_[static_cast<std::size_t>(rank)];
      return view.connected || view.keeper;
    });
    if (!heard) hosts.push_back(host.name);
  }
  return hosts;
}

std::vector<int> Start::ranks_of(const std::string& host) const {
  std::vector<int> ranks;
  for (int rank = 0; rank < this->ranks(); ++rank) {
    if (host_of(rank) == host) ranks.push_back(rank);
  }
  return ranks;
}

HangEvidence Start::evidence() const {
  HangEvidence evidence{.ranks = ranks(), .progress = {}, .records = {}};
  for (int rank = 0; rank < ranks(); ++rank) {
    const RankView& view = ranks_[static_cast<std::size_t>(rank)];
    evidence.progress[rank] = view.progress;
    if (view.records) evidence.records[rank] = *view.records;
  }
  return evidence;
}

}  // namespace trireme::supervisor
