#pragma once

// The inside of a Decider.

#include <deque>

#include "supervisor/decider.h"
#include "supervisor/run_tally.h"
#include "supervisor/start.h"

namespace trireme::supervisor {

inline bool reached(Seconds now, Seconds moment) { return now.count >= moment.count; }
inline Seconds later(Seconds moment, Seconds by) { return {moment.count + by.count}; }

// What is known of a failure when it is decided what to do about it.
struct Failing {
  FailureKind kind = FailureKind::kDied;
  std::vector<int> ranks;
  std::vector<std::string> hosts;  // of them, or those that are at fault without a rank
  int signal = 0;
  int code = 0;
  std::string message;
};

enum class StopReason { kPreempted, kUser, kLeaveOut, kGrow };

struct Decider::State {
  enum class Stage { kFresh, kUp, kEnding, kWaiting, kFinished };

  Policy policy;
  Choose choose;
  Membership membership;
  RunTally tally;
  Stage stage = Stage::kFresh;
  Seconds begun, now;
  int launches = 0, incidents = 0;
  std::optional<telemetry::Outcome> outcome;

  // Of the present start (kUp, kEnding).
  std::optional<Start> start;
  std::optional<Patience> patience;  // lives on over starts
  std::optional<StragglerDetector> stragglers;
  struct OpenStep {
    std::vector<double> compute_s;  // by rank; 0: not yet known
    Seconds took;                   // of the rank that took longest
  };
  std::map<std::int64_t, OpenStep> open_steps;
  bool connected = false;
  bool ever_heard = false;     // anybody, of any start
  bool ever_advanced = false;  // any rank
  bool resumed = false;
  std::optional<LauncherEnded> launcher_ended;
  std::optional<Seconds> clean_since;  // all ranks have ended in order
  struct Suspicion {
    Seconds since;
    Failing failing;  // what it is if nothing better is heard
  };
  std::vector<Suspicion> suspicions;    // oldest first
  std::optional<Seconds> flight_until;  // a hang is being looked into
  std::optional<StopReason> stopping;
  Seconds stop_until;
  Seconds asked_at;  // to stop, from outside, first
  bool asked_preempted = true;
  std::optional<std::pair<Seconds, bool>> stop_heard;  // by keepers, since when; by a scheduler
  bool all_silent_told = false;
  bool asked_to_stop = false;  // from outside: nothing is started any more
  bool grow = false;           // more, or better, hosts are there than the start uses

  // What comes once nothing of a start is left.
  struct Next {
    std::optional<ReshapeChoice> choice;  // else:
    Finish finish;
    Seconds pause;
  };
  Next next;
  Seconds launch_at;  // kWaiting
  // A start that began nowhere: its hosts that have not yet said whether they are there, and those that are not.
  std::set<std::string> to_answer, no_answer;

  // Failures since the last new durable step.
  std::vector<Incident> fruitless;
  std::int64_t durable_before = -1;

  std::vector<Action> actions;

  State(Policy policy, Choose choose);

  // decider.cc
  void take(const Begin& event);
  void take(const Heard& event);
  void take(const PeerGone& event);
  void take(const LauncherEnded& event);
  void take(const HostsListed& event);
  void take(const Probed& event);
  void take(const StopAsked& event);
  void take(const Rested& event);
  void take(const Tick& event);
  void hear(int peer, const telemetry::Hello& message);
  void hear(int peer, const telemetry::Alive& message);
  void hear(int peer, const telemetry::StepDone& message);
  void hear(int peer, const telemetry::Resumed& message);
  void hear(int peer, const telemetry::Saved& message);
  void hear(int peer, const telemetry::RankEnded& message);
  void hear(int peer, const telemetry::ProcessEnded& message);
  void hear(int peer, const telemetry::FlightRecords& message);
  void hear(int peer, const telemetry::Outcome& message);
  void hear(int peer, const telemetry::StopHeard& message);
  template <class Other>
  void hear(int, const Other&) {}  // not for a supervisor
  void look();                     // at the time, after every event
  void look_at_start();
  std::optional<Failing> silence() const;
  Seconds next_tick() const;
  Seconds hang_at() const;
  bool all_silent() const;

  // decider_starts.cc
  void launch(ReshapeChoice choice);
  void launch_next();
  std::optional<ReshapeChoice> choose_now();
  void note_progress();
  void end_all();
  void stop(StopReason reason);
  void ended_in_order();
  void consider_growing();
  void look_for_stragglers(std::int64_t step);  // all ranks have done it
  void record(const Incident& incident);
  void write(const std::optional<Recovery>& recovery);
  void finish(Finish finish);

  // decider_failures.cc
  void suspect(Failing failing);
  void lift_suspicions();
  bool ended_for_good(const Failing& failing) const;
  const Suspicion* ripe_suspicion() const;
  Seconds ripe_at(const Suspicion& suspicion) const;
  void ask_for_flight_records();
  void hung();
  void blame_hosts_not_heard(Failing& failing) const;
  void fail(Failing failing);
  void leave_out_silent_hosts();
  bool began_nowhere(const Failing& failing) const;
  void answered(const Probed& event);
  void add_host_of(Failing& failing, int rank) const;
  Incident incident_of(const Failing& failing) const;
  Next after(const Failing& failing, Incident& incident);
  Next again(Incident& incident, Seconds pause);
  std::optional<Finish> verdict(const Failing& failing);
  Finish no_progress(const Failing& failing) const;
  Seconds pause() const;
  std::string where(const std::vector<int>& ranks) const;
  std::optional<Finish> never_began(const Failing& failing) const;
  bool alone() const;  // one host, and no other
};

}  // namespace trireme::supervisor
