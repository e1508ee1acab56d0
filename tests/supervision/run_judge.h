#pragma once

// What must hold of a supervisor, whatever the world does: looked at after every event, with the truth at hand.

#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "supervision/simulated_world.h"

namespace trireme::supervisor {

class RunJudge {
 public:
  RunJudge(const Scenario& scenario, const SimulatedWorld& world) : scenario_(scenario), world_(world) {}

  // Before the actions are done.
  void saw(const Event& event, const std::vector<Action>& actions);
  void supervisor_lost();
  // At the end.
  void look_back(const Summary& summary);

  // The first rule that was broken, and how.
  const std::optional<std::string>& broken() const { return broken_; }
  const std::optional<Finish>& finish() const { return finish_; }
  int launches() const { return launches_; }
  int failures() const { return failures_; }
  int recoveries() const { return recoveries_; }

 private:
  void take(const Launch& launch);
  void take(const SendAll& send);
  void take(const EndLauncher&);
  void take(const Probe&) {}
  void take(const Write& write);
  void take(const Say&) {}
  void take(const Finish& finish);
  void take(const Incident& incident);
  void take(const Recovery& recovery);
  void note_news();
  void heard(const Event& event);
  void look_at_blame(const Incident& incident);
  void look_at_reaction();
  template <class... Args>
  void rule(bool holds, fmt::format_string<Args...> text, Args&&... args) {
    if (!holds && !broken_) broken_ = fmt::format(text, std::forward<Args>(args)...);
  }

  const Scenario& scenario_;
  const SimulatedWorld& world_;
  std::optional<std::string> broken_;
  std::optional<Finish> finish_;
  bool up_ = false, just_launched_ = false, news_since_launch_ = false;
  int stops_ = 0;
  int launches_ = 0, failures_ = 0, incidents_ = 0, recoveries_ = 0;
  int supervisors_launches_ = 0, supervisors_incidents_ = 0;  // of the present supervisor
  int supervisors_lost_ = 0;
  std::int64_t durable_ = 0;  // the truth
  std::int64_t told_ = 0;     // what was said of it
  int launches_since_ = 0;    // the newest durable step
  int failures_since_told_ = 0;
  int news_since_ = 0;  // events that may make a run move to other hosts in order
  bool incident_since_launch_ = false;
  std::optional<double> ending_since_, recovering_since_;
};

}  // namespace trireme::supervisor
