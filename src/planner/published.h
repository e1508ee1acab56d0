#pragma once

// Published training runs (a CSV file, one run a row) as problems that the planner can be asked, with what was
// measured. Columns and their units: docs/formats/published_runs.md. A row that has no layout the planner knows, or
// that measured nothing it predicts, is kept aside with its reason.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/evaluator.h"

namespace trireme::planner {

struct PublishedRun {
  std::string id;
  std::string source;
  int line = 0;  // of the file
  model::Config config;
  cluster::Cluster cluster;
  std::int64_t devices = 1;
  std::int64_t global_batch = 1;
  std::string framework;
  bool fp32_gradients = false;  // accumulated in fp32 whatever the framework's constants say
  Choice choice;
  std::optional<double> step_s;
  std::optional<double> memory_bytes;  // of the worst device
  bool memory_of_device = false;       // read from the device: with context and fragmentation; else what is allocated

  double model_flops() const;  // of a step
  double peak_flops_per_s() const { return static_cast<double>(devices) * cluster.device.bf16_flops_per_s; }
};

struct SkippedRun {
  std::string id;
  std::string source;
  int line = 0;
  std::string reason;  // the same text for all rows of one kind
  std::string detail;  // of this row
};

struct PublishedRuns {
  std::vector<PublishedRun> runs;
  std::vector<SkippedRun> skipped;
};

// Refuses, with file and line, a missing column and a number that is none. Columns that it does not know are passed
// over.
Result<PublishedRuns> parse_published(std::string_view text, const std::string& what);

// The framework entry of a calibration that stands for what a source ran; "" for a source that it does not know.
std::string framework_of_source(std::string_view source);

}  // namespace trireme::planner
