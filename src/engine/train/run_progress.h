#pragma once

// Where a run stands, counted from where this start of it began; and what every checkpoint of it says.

#include <optional>

#include "engine/train/resume.h"
#include "engine/train/run_saver.h"

namespace trireme::train {

// What a checkpoint says of who wrote it: version, compiler, libraries and instruction set, on all of which bits
// depend.
std::string program_text();
// The same and how it was built, in lines for people.
std::string version_text();

class RunProgress {
 public:
  // seen: the highest incarnation that the metrics had (telemetry::rewind_metrics); incarnation: this start's. Times
  // count from now.
  RunProgress(Env& env, const ResolvedRun& run, const Resumed& from, std::int64_t seen, std::int64_t incarnation);

  std::int64_t first_step() const { return start_.step; }  // steps done before
  std::int64_t incarnation() const { return start_.incarnation; }
  checkpoint::Progress at(std::int64_t step) const;

  // Failures that the run has seen: ends of earlier incarnations without a save of their own.
  SavePolicy policy() const;
  SaveFacts facts(const Json& data) const;

 private:
  Env& env_;
  const ResolvedRun& run_;
  checkpoint::Progress start_;  // of this incarnation
  Seconds begun_;
};

}  // namespace trireme::train
