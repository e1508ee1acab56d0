#pragma once

// One start of a run's workers, as far as the supervisor has heard: who is there, where each rank is, how it ended.
// Pure.

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "supervisor/hang_report.h"
#include "supervisor/reshape.h"

namespace trireme::supervisor {

// What a process that ends itself after its fence may need beyond it.
inline constexpr double kFenceMargin_s = 1.0;

struct Peer {
  bool keeper = false;
  std::vector<int> ranks;
  std::string host;
  Seconds last_heard;
  bool gone = false;
};

struct RankView {
  bool connected = false;  // its process has said hello
  telemetry::RankProgress progress;
  Seconds last_advance;
  std::optional<telemetry::RankEnded> ended;
  std::optional<telemetry::ProcessEnded> process_ended;
  std::optional<int> keeper;  // peer
  std::optional<std::vector<telemetry::OperationRecord>> records;

  bool clean() const { return ended && ended->code == 0; }
};

class Start {
 public:
  Start(ReshapeChoice choice, Seconds now);

  const ReshapeChoice& choice() const { return choice_; }
  int ranks() const { return static_cast<int>(ranks_.size()); }
  std::vector<RankView>& views() { return ranks_; }
  const std::vector<RankView>& views() const { return ranks_; }
  std::map<int, Peer>& peers() { return peers_; }
  const std::map<int, Peer>& peers() const { return peers_; }
  bool knows(int rank) const { return rank >= 0 && rank < ranks(); }
  const std::string& host_of(int rank) const { return choice_.placement.host_of(rank); }

  // False: it speaks for ranks that this start does not have, or that another speaks for.
  bool hello(int peer, const telemetry::Hello& hello, Seconds now);
  void heard(int peer, Seconds now);
  Seconds last_heard() const;  // of anybody whose connection is there; of nobody: 0
  // Everybody has fresh patience: what was silent or did not advance up to now was stopped, or could not be heard.
  void rest(Seconds now);
  // True: some rank has got on.
  bool progress(const telemetry::RankProgress& progress, Seconds now);
  // Where it was at its end: no advance.
  void last_known(const telemetry::RankProgress& progress);
  void got_on(int rank, Seconds now);  // by a message other than that
  // It is in the next one then, whatever it last said: several steps, or a save, may fit between two words.
  void step_done(int rank, std::int64_t step, Seconds now);

  bool all_connected() const;
  bool all_clean() const;
  // No rank process of this start can still run: each has ended, or nobody that could know is left and the time has
  // passed in which it would have ended itself.
  bool all_gone(Seconds now) const;
  Seconds gone_at_the_latest() const;
  Seconds last_advance() const { return last_advance_; }
  // Of the ranks that have not ended: the one that is furthest behind.
  telemetry::Phase phase() const;
  std::int64_t step() const;  // at hand
  // Those without an end in order, where some have one; else none.
  std::vector<int> ranks_that_run_on() const;
  // Hosts of which nobody was heard since `since`, though somebody of them is connected; none where all are
  // silent, and none has closed its connections: then it may be us who are cut off.
  std::vector<std::string> silent_hosts(Seconds since) const;
  // Ranks that run on, of which nothing was heard since `since`, though their keeper was: their process is stopped. It
  // is seen so in any phase, however long nothing may advance in that.
  std::vector<int> stopped_ranks(Seconds since) const;
  // Hosts of this start of which nobody was ever heard.
  std::vector<std::string> hosts_not_heard() const;
  std::vector<int> ranks_of(const std::string& host) const;
  HangEvidence evidence() const;

 private:
  ReshapeChoice choice_;
  std::vector<RankView> ranks_;
  std::map<int, Peer> peers_;
  Seconds last_advance_;
};

}  // namespace trireme::supervisor
