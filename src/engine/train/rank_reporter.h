#pragma once

// What a process of a run tells its supervisor, and what it is told. Without a supervisor nothing is told and nobody
// asks to stop. The members of a RankReporter are its rank's thread's, but for those of its own thread that reads them.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/env.h"
#include "plan/program.h"
#include "telemetry/control_message.h"

namespace trireme::train {

// What a rank is at while it executes an instruction of a step; nullopt: what it was at before (memory that comes and
// goes).
std::optional<telemetry::Phase> phase_at(const plan::Instruction& instruction);

// What a rank's thread writes and others read; all zero is a legal one. In memory that its keeper shares where it has
// one, so that it is known to the last instruction where a process was that is gone.
struct alignas(64) ProgressCell {
  std::atomic<std::int64_t> step, advances;
  std::atomic<int> phase, micro_batch;
  static_assert(std::atomic<std::int64_t>::is_always_lock_free && std::atomic<int>::is_always_lock_free);
};
telemetry::RankProgress progress_of(const ProgressCell& cell, int rank);

class RankReporter {
 public:
  // cell: outlives it; null: its own.
  explicit RankReporter(int rank, ProgressCell* cell = nullptr);
  // A few nanoseconds each: relaxed stores.
  void at(telemetry::Phase phase, int micro_batch = -1);
  void at(const plan::Instruction& instruction);  // before it is executed; validation stays what it is
  void step(std::int64_t step);                   // the step at hand
  void advance();
  telemetry::RankProgress progress() const { return progress_of(cell_, rank_); }  // any thread

 private:
  const int rank_;
  ProgressCell own_{};
  ProgressCell& cell_;
};

class Reporter {
 public:
  virtual ~Reporter() = default;
  virtual RankReporter& rank(int rank) = 0;  // one of this process
  virtual void send(const telemetry::Message& message) = 0;
  // Whom to ask for a rank's last operations, from now until it is given null. Any thread.
  virtual void set_recorder(int rank, const telemetry::FlightRecorder* recorder) = 0;
  virtual bool stop_requested() const = 0;  // the supervisor has asked
  // Whatever was sent has left, or a second has passed.
  virtual void flush() = 0;
};

// Tells nobody.
std::unique_ptr<Reporter> make_silent_reporter(const std::vector<int>& ranks);

struct SupervisedBy {
  std::string address;
  std::string secret;
  std::int64_t incarnation = 0;
};
// From the environment that a supervisor gives its workers (TRIREME_CONTROL, TRIREME_SECRET, TRIREME_INCARNATION);
// nullopt: none is set. Error(kUsage) where they make no sense.
std::optional<SupervisedBy> supervised_by(
    const std::function<std::optional<std::string>(const std::string&)>& variable);
// Connects. Once the supervisor is gone the process ends at once with kRankLost. Where the ranks are is the line's
// regular word.
// cells: of these ranks, in their order; empty: its own.
std::unique_ptr<Reporter> make_reporter(Env& env, const SupervisedBy& by, const std::vector<int>& ranks,
                                        std::span<ProgressCell> cells = {});

}  // namespace trireme::train
