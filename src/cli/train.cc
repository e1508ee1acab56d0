#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/launch.h"
#include "cli/launcher_advice.h"
#include "cli/supervised_train.h"
#include "cli/train_ranks.h"
#include "engine/train/run_checks.h"
#include "report/ledger_table.h"

namespace trireme::cli {
namespace {

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

ExitCode run_train(Env& env, const comm::Launch& by_variables, const TrainOptions& options) {
  const RunDescription description = read_run(env, options);
  const comm::Launch launch = launch_of_run(by_variables, description.config.supervise.launcher);
  const train::ResolvedRun run = resolve_train(env, launch, description);
  if (options.dry_run) {
    const bool all_here = launch.launcher == "none" ? !on_several_hosts(env, run.config.supervise)
                                                    : launch.ranks_here == run.config.layout.world();
    train::check_dry_run(env, *make_stderr_log(), run, all_here);
    const train::Launcher launcher = chosen_launcher(run.config.supervise);
    if (launch.launcher == "none" && (launcher == train::Launcher::kThreads || launcher == train::Launcher::kNone)) {
      train::check_address_space(env, run, train::all_ranks(run.config.layout));
    }
    return dry_run(run, options.json);
  }
  // A launcher that is not this program's own has the last word: its ranks have no supervisor.
  const bool alone = launch.launcher == "none";
  if (alone && run.config.supervise.launcher != train::Launcher::kNone) {
    return train_supervised(env, description, run, options);
  }
  return train_ranks(env, launch, run, options, std::nullopt);
}

}  // namespace

void declare_train(Command& root, Env& env) {
  auto options = std::make_shared<TrainOptions>();
  Command& command = root.command("train", "Train a model");
  declare_train_options(command, *options);
  command.flag("dry-run", options->dry_run, "print the resolved run, the ledger and the batch equation, and stop");
  std::string keys = "Every key of run.toml can be given as --section.key value:\n";
  for (const train::RunKey& key : train::run_keys()) {
    keys += fmt::format("  --{:<38} {}: {}\n", key.name, key.kind, key.help);
  }
  command.examples(
      "  trireme train examples/runs/small.toml --out runs/one\n"
      "  trireme train run.toml --dry-run --train.micro_batch 8\n"
      "  trireme train run.toml --train.steps 50 --layout.recompute full --overwrite\n"
      "  trireme train run.toml                         the same again goes on from the newest checkpoint\n"
      "  trireme train run.toml --layout.tp 2 --resume runs/one --out runs/two\n"
      "  trireme train run.toml --supervise.hosts a:8,b:8,c:8:spare\n\n" +
      keys);
  command.keeps_results([options] { return !options->dry_run; });
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
