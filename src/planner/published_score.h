#pragma once

// How near the planner comes to published runs, source by source: errors of different sources are never pooled.

#include "planner/published.h"

namespace trireme::planner {

// A run whose time is compared has step_s, one whose memory is compared memory_bytes.
struct RunScore {
  const PublishedRun* run = nullptr;  // of the runs scored, which must outlive this
  std::optional<double> step_s;       // predicted
  std::optional<double> null_step_s;  // of kNullShare of the peak
  std::optional<double> memory_bytes;
};

// Relative errors, predicted / measured - 1.
struct Errors {
  int count = 0;
  double mean = 0;    // of the absolute errors
  double median = 0;  // of the absolute errors
  double bias = 0;    // mean of the signed errors
  double worst = 0;   // the largest absolute error, with its sign
};
Errors errors_of(const std::vector<double>& signed_errors);

struct SourceScore {
  std::string source;
  bool slow = false;  // runs below kSlowShare of the peak, which a source's others are not measured by
  Errors time;
  Errors null_time;
  Errors memory;
};

// The null model: every run reaches this share of its devices' peak.
inline constexpr double kNullShare = 0.45;
inline constexpr double kSlowShare = 0.10;

Result<std::vector<RunScore>> score_runs(const PublishedRuns& published, const Calibration& calibration);
// In the order of the file; a source's slow runs after its others.
std::vector<SourceScore> score_sources(const std::vector<RunScore>& scores);

}  // namespace trireme::planner
