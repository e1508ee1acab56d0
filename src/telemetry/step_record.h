#pragma once

// One line of metrics.jsonl: what a step gave. People and scripts rely on the names (docs/formats/metrics.md).

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/env.h"
#include "base/json.h"
#include "base/log.h"

namespace trireme::telemetry {

// Of rank 0, along one axis of the layout.
struct AxisCommunication {
  std::string axis;          // "data", "tensor", "pipeline"
  double under_way_s = 0.0;  // at least one operation was
  double exposed_s = 0.0;    // the rank waited for one; the rest was hidden behind work
  friend bool operator==(const AxisCommunication&, const AxisCommunication&) = default;
};

struct StepRecord {
  std::int64_t step = 0;   // counts from 1
  double loss = 0.0;       // nats a token, mean over the global batch
  double grad_norm = 0.0;  // before clipping
  double clip_factor = 1.0;
  double learning_rate = 0.0;
  std::int64_t first_sample = 0;  // the first of the run's samples that the step used, as the leader took it
  std::int64_t samples = 0;       // that the step used, one after the other
  std::int64_t tokens = 0;        // of all steps so far
  double tokens_per_s = 0.0;
  std::optional<double> mfu = std::nullopt;  // model flops / (seconds * measured GEMM rate), where that is known
  double step_s = 0.0;
  std::int64_t resident_bytes = 0;                    // anonymous and shared-memory pages of the process
  std::vector<AxisCommunication> communication = {};  // of the axes that communicate
  std::optional<double> validation_loss = std::nullopt;
  std::int64_t incarnation = 1;                       // which start of the run it is of
  std::optional<double> save_stall_s = std::nullopt;  // a checkpoint of this step was begun: how long training waited
  std::optional<double> loss_scale = std::nullopt;    // of an fp16 run
  bool left_out = false;                              // a scaled gradient overflowed; the norm is infinite
  // Of the time since the run began, the share of the steps that it kept.
  std::optional<double> goodput = std::nullopt;
};

// Losses and norms twice: as decimals for people, as hex floats for comparisons.
Json to_json(const StepRecord& record);
Result<StepRecord> step_record_from_json(const Json& line);

// What the metrics of earlier starts have told.
struct EarlierMetrics {
  std::int64_t incarnation = 0;  // the highest that any line had; 0: there were none
  double step_s = 0.0;           // sum over the lines that stay
};
// A run that goes on from step `step`: drops the lines of later ones, and one that was cut off, so that no step is
// there twice. No file: none is made.
EarlierMetrics rewind_metrics(Env& env, const std::string& path, std::int64_t step);

// The file's whole lines, up to one that is torn; none where there is no file. Changes nothing.
std::vector<StepRecord> read_steps(Env& env, const std::string& path);

// Appends lines; each is handed to the system whole, so a killed run leaves whole lines. While the disk is full they
// are kept, so that the run goes on, and written once there is room: what of a line is in the file stays.
class MetricsWriter {
 public:
  // env: one that does not wait. References outlive it.
  MetricsWriter(Env& env, Log& log, const std::string& path);
  // Error once there has been no room for kDiskPatience.
  void write(const StepRecord& record);
  // All lines are in the file when it returns; waits for room as long.
  void flush();
  void close();

 private:
  bool put();  // true: nothing is kept

  Env& env_;
  Log& log_;
  std::unique_ptr<Writer> file_;
  std::string kept_;
  std::optional<Seconds> full_since_;
};

}  // namespace trireme::telemetry
