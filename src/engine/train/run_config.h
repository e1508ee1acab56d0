#pragma once

// run.toml: what a run is. Every key can be given in the file or on the command line (--train.steps 50); the resolved
// file is kept in the run directory. One table describes all keys: reading, refusing, printing and --help use it.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/env.h"
#include "base/error.h"
#include "base/json.h"
#include "checkpoint/store.h"
#include "engine/optim/learning_rate.h"
#include "engine/optim/loss_scale.h"
#include "engine/optim/optimizer.h"
#include "engine/train/save_schedule.h"
#include "plan/layout.h"

namespace trireme::train {

// What starts the ranks.
enum class Launcher { kAuto, kThreads, kMpirun, kSrun, kNone };
Result<Launcher> parse_launcher(std::string_view text);
std::string_view launcher_name(Launcher launcher);
enum class Stragglers { kReport, kEvict };
Result<Stragglers> parse_stragglers(std::string_view text);
std::string_view stragglers_name(Stragglers stragglers);

// What a supervisor of the run goes by.
struct SuperviseConfig {
  Launcher launcher = Launcher::kAuto;
  std::string hosts;       // "": this one
  bool rehearsal = false;  // hosts are names only
  std::string mpirun = "mpirun";
  std::string srun = "srun";
  std::string address;
  std::int64_t retries = 3;
  Seconds backoff{1};
  Seconds grace{30};
  double hang_factor = 3;
  Seconds hang_floor{2};
  Stragglers stragglers = Stragglers::kReport;
  double straggler_margin = 1.2;
  Seconds straggler_span{0.5};
  std::int64_t host_failures = 2;
  Seconds cooldown{600};
};

struct RunConfig {
  // [model]
  std::string model_config;   // config.json or a directory that holds one
  std::string model_weights;  // safetensors to start from; "": initialise
  // [data]
  std::string train_tokens;
  std::string validation_tokens;  // "": no validation
  std::int64_t ignore = -1;       // targets of this token bear no loss; -1: none
  std::int64_t token_bytes = 0;   // of a token in these files; 0: as a file beside them or the vocabulary says
  // [train]
  std::int64_t steps = 100;
  std::uint64_t seed = 1;
  DType precision = DType::kF32;           // of weights, gradients and activations
  bool fp32_gradients = false;             // whatever the precision
  std::int64_t threads = 0;                // compute threads of a rank; 0: all cores
  std::int64_t validation_interval = 100;  // steps; 0: only at the end
  std::int64_t validation_micro_batches = 8;
  std::int64_t log_interval = 0;    // steps; 0: by time
  Bytes memory_limit;               // of each rank's ledger; 0: none
  double deadline_s = 120.0;        // longest wait of a rank for another
  double start_deadline_s = 600.0;  // the same until the first step is done
  plan::Batch batch{.global_batch = 8, .micro_batch = 4, .sequence = 256};
  // [optimizer]
  optim::OptimizerConfig optimizer;
  optim::LearningRateSchedule learning_rate;  // total_steps follows train.steps
  optim::LossScalePolicy loss_scale;          // of an fp16 run
  // [layout]
  plan::Layout layout;
  bool allow_slow_tp = false;  // tensor-parallel groups may leave a host
  // [checkpoint]
  SaveInterval save_interval;
  bool async_saves = true;
  checkpoint::Retention retention;
  Seconds mtbf;  // of the whole run; 0: not given
  std::string cluster;
  std::string resume;
  std::vector<std::string> accept;
  // [supervise]
  SuperviseConfig supervise;
  // [out]
  std::string out = "runs/default";
  bool overwrite = false;
  std::string trace;             // file for a timeline of all ranks; "": none
  std::int64_t trace_first = 0;  // steps that it shows, first and last; 0: the default
  std::int64_t trace_last = 0;
};

inline constexpr std::int64_t kMostTracedSteps = 100;

// A key of the file: "train.steps".
struct RunKey {
  std::string name;
  std::string kind;  // "integer", "number", "text", "true or false"
  std::string help;
  std::function<Status(RunConfig&, const Json&)> set;
  std::function<Json(const RunConfig&)> get;
};
const std::vector<RunKey>& run_keys();

// Overrides are (key, text) pairs in the order given; they win over the file. An unknown key or section is refused with
// the nearest known one; a value of the wrong type or out of range with its rule.
Result<RunConfig> make_run_config(const Json& file, const std::vector<std::pair<std::string, std::string>>& overrides);
Result<RunConfig> load_run_config(Env& env, const std::string& path,
                                  const std::vector<std::pair<std::string, std::string>>& overrides);

// By section and key, as the file has them.
Json to_json(const RunConfig& config);
// The resolved run as a TOML document: loading it again gives the same run.
std::string to_toml(const RunConfig& config);

}  // namespace trireme::train
