#pragma once

// How long nothing may advance before it counts as a hang. Learned from this run's own times, phase by phase; generous
// until there is something to learn from. Pure.

#include <array>
#include <cstdint>
#include <vector>

#include "base/units.h"
#include "telemetry/control_message.h"

namespace trireme::supervisor {

struct PatiencePolicy {
  Seconds start{600};  // until the first step is done, and of phases never seen before
  Seconds floor{1};    // never less
  Seconds most{120};   // never more (train.deadline), but for what is generous
  double factor = 3;   // of the longest gap between two advances among those remembered
};

// Told when the run as a whole advances (the sum of all ranks' advances grows), and what the phase of the rank that is
// furthest behind was.
class Patience {
 public:
  static constexpr std::size_t kRemembered = 200;  // gaps of a phase, and steps

  explicit Patience(PatiencePolicy policy);
  // A gap of `gap` between two advances ended, in a step that counts or before.
  void learn(telemetry::Phase phase, Seconds gap);
  // A step's length, an upper bound of what a gap in it should be: it stands in for the gaps of a phase of a step
  // (forward, backward, reduce, optimizer) that has none yet.
  void step_done(Seconds step);
  void restart();  // a new incarnation: what was learned stays, first steps are generous again
  Seconds deadline(telemetry::Phase phase) const;

 private:
  // The longest of the last kRemembered: the lengths that may yet be it, longest (and oldest) first.
  class Longest {
   public:
    void add(double length);
    double value() const { return kept_.empty() ? 0 : kept_.front().length; }
    bool empty() const { return kept_.empty(); }

   private:
    struct Kept {
      std::int64_t number = 0;
      double length = 0;
    };
    std::int64_t count_ = 0;
    std::vector<Kept> kept_;
  };
  static constexpr std::size_t kPhases = static_cast<std::size_t>(telemetry::Phase::kFinish) + 1;

  PatiencePolicy policy_;
  bool first_step_done_ = false;  // of this incarnation
  std::array<Longest, kPhases> gaps_;
  Longest steps_;
};

}  // namespace trireme::supervisor
