#include "cli/train_ranks.h"

#include <charconv>
#include <cstdlib>
#include <numeric>

#include <fmt/format.h>

#include "base/screen.h"
#include "base/stop_signals.h"
#include "cli/launch.h"
#include "engine/train/trainer.h"
#include "report/ledger_table.h"

namespace trireme::cli {
namespace {

Json outcome_json(const train::TrainOutcome& outcome) {
  Json ranks = Json::array();
  for (const train::RankReport& rank : outcome.ranks) ranks.push_back(to_json(rank));
  Json json = Json::object({{"first_step", outcome.first_step},
                            {"steps", outcome.steps_done},
                            {"interrupted", outcome.interrupted},
                            {"out", outcome.out},
                            {"gemm_flops_per_s", outcome.gemm_flops_per_s},
                            {"resident_bytes", outcome.resident.count},
                            {"predicted", report::ledger_json(outcome.predicted)},
                            {"counted", report::ledger_json(outcome.counted)},
                            {"ranks", ranks}});
  if (outcome.last) json["last"] = telemetry::to_json(*outcome.last);
  if (outcome.validation_loss) json["validation_loss"] = *outcome.validation_loss;
  return json;
}

std::string outcome_text(const train::TrainOutcome& outcome) {
  std::string text;
  if (!outcome.last) {
    text = fmt::format("nothing to do: step {} was done before; a larger train.steps goes on", outcome.steps_done);
  } else {
    text = fmt::format("\n{}\n{} after {} steps, loss {:.4f}",
                       report::ledger_table(outcome.predicted, outcome.counted, outcome.resident),
                       outcome.interrupted ? "interrupted" : "done", outcome.steps_done, outcome.last->loss);
  }
  if (outcome.validation_loss) text += fmt::format(", validation loss {:.4f}", *outcome.validation_loss);
  text += fmt::format(
      "\n  {0}/run.toml       the resolved run\n  {0}/metrics.jsonl  a line a step\n"
      "  {0}/model          config.json and model.safetensors, as Hugging Face reads them\n",
      outcome.out);
  if (outcome.checkpoints) {
    text += fmt::format("  {0}/checkpoints    what the same command goes on from (trireme checkpoint ls {0})\n",
                        outcome.out);
  }
  return text;
}

std::optional<std::string> variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

double number(const char* name) {
  const std::string text = variable(name).value_or("");
  double value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// As a supervised run's.
ExitCode code_of_stop(const train::RunConfig& config) {
  if (config.save_interval.kind == train::SaveInterval::Kind::kNone) return ExitCode::kRequeue;
  return stop_counts().user > 0 ? ExitCode::kInterrupted : ExitCode::kPreempted;
}

}  // namespace

std::optional<Supervised> current_supervision() {
  const std::optional<train::SupervisedBy> by = train::supervised_by(variable);
  if (!by) return std::nullopt;
  return Supervised{.by = *by,
                    .run_elapsed_s = number("TRIREME_RUN_ELAPSED"),
                    .gemm_flops_per_s = number("TRIREME_GEMM_RATE"),
                    .ranks = static_cast<int>(number("TRIREME_RANKS")),
                    .run = variable(kRunVariable).value_or("")};
}

std::vector<int> own_ranks(const comm::Launch& launch, int ranks) {
  if (backend_of(launch) == plan::Backend::kMessages) return {launch.rank};
  std::vector<int> all(static_cast<std::size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

ExitCode train_ranks(Env& env, const comm::Launch& launch, const train::ResolvedRun& run, const TrainOptions& options,
                     const std::optional<Supervised>& supervised, std::span<train::ProgressCell> cells) {
  // Of a supervised run the keeper hears signals, and the supervisor says what becomes of them.
  const bool tells = launch.rank == 0 && !supervised;
  if (supervised) {
    ignore_stop_signals();
  } else {
    catch_stop_signals(tells ? "\nstopping after this step, with the model saved; a second signal ends at once\n" : "");
  }
  Screen screen(write_to_stderr, stderr_columns);
  const std::unique_ptr<Log> log = make_log_on(screen);
  const std::vector<int> ranks = own_ranks(launch, run.config.layout.world());
  // Before MPI, whose start may take long or fail: the supervisor is to see that too.
  const std::unique_ptr<train::Reporter> reporter =
      supervised ? make_reporter(env, supervised->by, ranks, cells) : train::make_silent_reporter(ranks);
  const std::unique_ptr<train::RunWorld> world = make_run_world(launch, env, run.config);
  const bool leads = world->leads();
  if (tells) write_to_stderr(train::describe_run(run));
  train::TrainHooks hooks{
      .stop_requested = stop_requested, .screen = leads ? &screen : nullptr, .reporter = reporter.get()};
  if (supervised) {
    hooks.incarnation = supervised->by.incarnation;
    hooks.wall_before_s = supervised->run_elapsed_s;
    hooks.gemm_flops_per_s = supervised->gemm_flops_per_s;
  }
  if (!options.inject.empty()) hooks.faults = train::parse_planned_faults(options.inject).or_throw();
  const train::TrainOutcome outcome = train::train(env, *log, run, *world, hooks);
  if (!leads) return ExitCode::kDone;
  if (supervised) {
    reporter->send(telemetry::Outcome{
        .text = outcome_text(outcome), .json = outcome_json(outcome), .interrupted = outcome.interrupted});
    reporter->flush();
    return ExitCode::kDone;
  }
  if (options.json) {
    fmt::print("{}\n", outcome_json(outcome).dump(2));
  } else {
    fmt::print("{}", outcome_text(outcome));
  }
  return outcome.interrupted ? code_of_stop(run.config) : ExitCode::kDone;
}

}  // namespace trireme::cli
