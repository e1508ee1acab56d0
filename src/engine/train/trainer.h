#pragma once

// The step loop of a run: plan, model and data to steps, metrics, a trained model on disk.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/env.h"
#include "base/log.h"
#include "base/screen.h"
#include "engine/parallel/run_plan.h"
#include "engine/train/planned_faults.h"
#include "engine/train/rank_report.h"
#include "engine/train/rank_reporter.h"
#include "engine/train/run_config.h"
#include "engine/train/run_world.h"
#include "telemetry/step_record.h"

namespace trireme::train {

struct TrainHooks {
  std::function<bool()> stop_requested;  // asked between steps and between rounds of validation
  Screen* screen = nullptr;              // where progress is shown; null: nowhere
  // Under a supervisor.
  Reporter* reporter = nullptr;                            // null: nobody is told
  std::optional<std::int64_t> incarnation = std::nullopt;  // which start of the run it counts this one as
  double gemm_flops_per_s = 0;                             // that an earlier start has measured; 0: to be measured
  std::optional<double> wall_before_s = std::nullopt;      // since it began the run, at this process's start
  // Drills and tests.
  bool measures_again = true;  // false: gemm_flops_per_s stays what it is through the run
  std::vector<PlannedFault> faults = {};
};

struct TrainOutcome {
  std::int64_t first_step = 1;  // of this start of the run
  std::int64_t steps_done = 0;
  bool interrupted = false;
  bool checkpoints = false;                                  // there are some to go on from
  std::optional<telemetry::StepRecord> last = std::nullopt;  // of the last step; none: there was nothing left to do
  std::optional<double> validation_loss = std::nullopt;      // of the end
  Ledger predicted;                                          // of rank 0
  Ledger counted;
  Bytes resident;  // of its process: anonymous and shared-memory pages at the end
  std::vector<RankReport> ranks = {};
  double gemm_flops_per_s = 0.0;
  std::string out;
};

// Values of a run before anything is allocated.
struct ResolvedRun {
  RunConfig config;
  parallel::RunPlan plan;
  Json model_document = nullptr;   // the config.json as it is; null: as model::to_hugging_face writes the plan's
  std::int64_t stored_layers = 0;  // of the model that model.weights are of; 0: as the plan's
};
Json model_document(const ResolvedRun& run);

struct ResolveOptions {
  std::optional<Json> model = std::nullopt;  // what model.config holds; none: it is read
  std::int64_t layers = 0;  // > 0: the model with so many decoder layers instead of its own; of weights the first
  int ranks_here = 0;       // ranks that share this host's cores; 0: all of the run
  plan::Backend backend = plan::Backend::kThreads;
};
// Reads the model and checks all rules, the ones of this engine too (what it does not run is refused by name). A model
// that was read from what can be read once only is named by its place in the run directory from here on.
ResolvedRun resolve_run(Env& env, const RunConfig& config, const ResolveOptions& options = {});

// The batch equation, the ledger, the resolved file: what --dry-run prints.
std::string describe_run(const ResolvedRun& run);

// Everything that can be refused before memory is taken or a file is written: data, weights, run directory and, where
// all ranks are on this host, memory. Reads all tokens.
void check_dry_run(Env& env, Log& log, const ResolvedRun& run, bool all_here = true);

// Trains: this process's ranks of `world`, which has as many as the layout and the plan's
// backend (CHECK) and is shut down at the end. Errors
// carry their exit code; the run directory is left as it is. The outcome is whole in the leader's process.
TrainOutcome train(Env& env, Log& log, const ResolvedRun& run, RunWorld& world, const TrainHooks& hooks);

}  // namespace trireme::train
