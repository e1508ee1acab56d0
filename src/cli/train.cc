#include <cstdio>

#include <fmt/format.h>

#include "base/stop_signals.h"
#include "cli/cluster_mtbf.h"
#include "cli/commands.h"
#include "cli/launch.h"
#include "cli/memory_limit.h"
#include "engine/train/trainer.h"
#include "report/ledger_table.h"

namespace trireme::cli {
namespace {

struct Options {
  std::string file;
  std::string out;
  std::string trace;
  std::string trace_steps;
  bool dry_run = false;
  bool overwrite = false;
  bool allow_slow_tp = false;
  std::string memory_limit;
  std::string resume;
  std::string accept;
  bool json = false;
  std::vector<std::pair<std::string, std::string>> settings;
};

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

void print_outcome(const train::TrainOutcome& outcome) {
  if (!outcome.last) {
    fmt::print("nothing to do: step {} was done before; a larger train.steps goes on", outcome.steps_done);
  } else {
    fmt::print("\n{}\n", report::ledger_table(outcome.predicted, outcome.counted, outcome.resident));
    fmt::print("{} after {} steps", outcome.interrupted ? "interrupted" : "done", outcome.steps_done);
  }
  if (outcome.last) fmt::print(", loss {:.4f}", outcome.last->loss);
  if (outcome.validation_loss) fmt::print(", validation loss {:.4f}", *outcome.validation_loss);
  fmt::print(
      "\n  {0}/run.toml       the resolved run\n  {0}/metrics.jsonl  a line a step\n"
      "  {0}/model          config.json and model.safetensors, as Hugging Face reads them\n"
      "  {0}/checkpoints    what the same command goes on from (trireme checkpoint ls {0})\n",
      outcome.out);
}

ExitCode dry_run(const train::ResolvedRun& run, bool json) {
  const Ledger predicted = parallel::predicted_ledger(run.plan);
  if (json) {
    fmt::print("{}\n", Json::object({{"parameters", run.plan.table.total()},
                                     {"tokens_per_step", plan::tokens_per_step(run.config.batch)},
                                     {"micro_batches", plan::micro_batches(run.config.layout, run.config.batch)},
                                     {"run", parse_toml(train::to_toml(run.config), "run").or_throw()},
                                     {"predicted", report::ledger_json(predicted)}})
                           .dump(2));
    return ExitCode::kDone;
  }
  fmt::print("{}\n{}\n{}", train::to_toml(run.config), train::describe_run(run),
             "\n" + report::ledger_table(predicted, std::nullopt, std::nullopt));
  return ExitCode::kDone;
}

ExitCode run_train(Env& env, const comm::Launch& launch, Options options) {
  const std::pair<const char*, const std::string*> texts[] = {{"--out", &options.out},
                                                              {"--trace", &options.trace},
                                                              {"--trace-steps", &options.trace_steps},
                                                              {"--resume", &options.resume},
                                                              {"--accept", &options.accept}};
  for (const auto& [option, value] : texts) {
    if (value->rfind("--", 0) != 0) continue;
    throw Error(Failure{.option = option, .value = *value, .rule = "needs a value", .nearest = ""});
  }
  if (!options.out.empty()) options.settings.emplace_back("out.directory", options.out);
  if (!options.trace.empty()) options.settings.emplace_back("out.trace", options.trace);
  if (!options.trace_steps.empty()) options.settings.emplace_back("out.trace_steps", options.trace_steps);
  if (options.allow_slow_tp) options.settings.emplace_back("layout.allow_slow_tp", "true");
  if (!options.memory_limit.empty()) options.settings.emplace_back("train.memory_limit", options.memory_limit);
  if (!options.resume.empty()) options.settings.emplace_back("checkpoint.resume", options.resume);
  if (!options.accept.empty()) options.settings.emplace_back("checkpoint.accept", options.accept);
  if (options.overwrite) options.settings.emplace_back("out.overwrite", "true");
  train::RunConfig config = train::load_run_config(env, options.file, options.settings).or_throw();
  if (!config.cluster.empty() && config.mtbf.count == 0) {
    config.mtbf = cluster_mtbf(env, config.cluster, config.layout.world()).or_throw();
  }
  if (Status status = check_launch(launch, config.layout); !status) throw Error(status.failure());
  const int ranks_here = launch.launcher == "none" ? 0 : launch.ranks_here;
  const train::ResolvedRun run =
      train::resolve_run(env, config, {.ranks_here = ranks_here, .backend = backend_of(launch)});
  if (Status status = check_memory_limit(env, run); !status) throw Error(status.failure());
  if (options.dry_run) {
    train::check_dry_run(env, run);
    return dry_run(run, options.json);
  }

  const std::unique_ptr<Log> log = make_stderr_log();
  // A log that cannot be written must not end a run: what fputs says is passed over.
  const auto put = [](const std::string& text) { std::fputs(text.c_str(), stderr); };
  const std::unique_ptr<train::RunWorld> world = make_run_world(launch, env, config);
  const bool leads = world->leads();
  if (leads) put(train::describe_run(run));
  catch_stop_signals(leads ? "\nstopping after this step, with the model saved; a second signal ends at once\n" : "");
  const train::TrainHooks hooks{.stop_requested = stop_requested,
                                .put = leads ? std::function(put) : [](const std::string&) {},
                                .terminal = leads && env.stderr_is_terminal()};
  const train::TrainOutcome outcome = train::train(env, *log, run, *world, hooks);
  if (!leads) return ExitCode::kDone;
  if (options.json) {
    fmt::print("{}\n", outcome_json(outcome).dump(2));
  } else {
    print_outcome(outcome);
  }
  return outcome.interrupted ? ExitCode::kInterrupted : ExitCode::kDone;
}

}  // namespace

void declare_train(Command& root, Env& env) {
  auto options = std::make_shared<Options>();
  Command& command = root.command("train", "Train a model");
  command.positional("run", options->file, "run.toml", true);
  command.option("out", options->out, "run directory (out.directory)");
  command.option("trace", options->trace, "file for a timeline of all ranks, which Perfetto shows (out.trace)");
  command.option("trace-steps", options->trace_steps, "steps that it shows: 3-5 (out.trace_steps)");
  command.flag("dry-run", options->dry_run, "print the resolved run, the ledger and the batch equation, and stop");
  command.flag("allow-slow-tp", options->allow_slow_tp, "tensor-parallel ranks may be on different hosts");
  command.option("memory-limit", options->memory_limit, "what a rank may hold: 8GB, 512MiB (train.memory_limit)");
  command.option("resume", options->resume, "checkpoint, or run, to start from (checkpoint.resume)");
  command.option("accept", options->accept, "keys that may differ from the checkpoint's run (checkpoint.accept)");
  command.flag("overwrite", options->overwrite, "write into a run directory that exists");
  command.flag("json", options->json, "one JSON object on standard output");
  command.settings(options->settings);
  std::string keys = "Every key of run.toml can be given as --section.key value:\n";
  for (const train::RunKey& key : train::run_keys()) {
    keys += fmt::format("  --{:<38} {}: {}\n", key.name, key.kind, key.help);
  }
  command.examples(
      "  trireme train examples/runs/demo.toml --out runs/one\n"
      "  trireme train run.toml --dry-run --train.micro_batch 8\n"
      "  trireme train run.toml --train.steps 50 --layout.recompute full --overwrite\n"
      "  trireme train run.toml                         the same again goes on from the newest checkpoint\n"
      "  trireme train run.toml --layout.tp 2 --resume runs/one --out runs/two\n\n" +
      keys);
  command.run([options, &env] {
    const comm::Launch launch = current_launch();
    try {
      return run_train(env, launch, *options);
    } catch (const Error& error) {
      let_the_cause_end_first(launch, env, error.code());
      throw;
    }
  });
}

}  // namespace trireme::cli
