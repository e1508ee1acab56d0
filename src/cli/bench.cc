// trireme bench: what this machine does, measured.

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/launch.h"
#include "cli/train_options.h"
#include "engine/train/step_profile.h"
#include "report/kernel_table.h"

namespace trireme::cli {
namespace {

struct StepOptions {
  TrainOptions train;
  std::int64_t steps = 3, rank = 0;
  bool shapes = false;
};

void check_range(const char* flag, std::int64_t value, std::int64_t least, std::int64_t most, const char* nearest) {
  if (value >= least && value <= most) return;
  throw Error(Failure{.option = flag,
                      .value = fmt::format("{}", value),
                      .rule = fmt::format("must be between {} and {}", least, most),
                      .nearest = nearest});
}

void print(const train::StepProfile& profile, const std::vector<report::KernelRow>& rows, double ranks) {
  fmt::print("{}\n", report::kernel_table(rows, profile.step_s, profile.waited_s));
  fmt::print(
      "{:.0f} tokens/s, {:.1f} GFLOP/s of the model: {:.1f} % of the rate of products, {:.1f} GFLOP/s a rank; "
      "a copy reads and writes {:.1f} GB/s\n",
      profile.tokens / profile.step_s, profile.model_flops / profile.step_s / 1e9,
      100 * profile.model_flops / profile.step_s / ranks / profile.gemm_flops_per_s, profile.gemm_flops_per_s / 1e9,
      profile.copy_bytes_per_s / 1e9);
}

ExitCode run_step(Env& env, const StepOptions& options) {
  const comm::Launch launch = current_launch();
  if (Status status = check_alone(launch, "bench step"); !status) throw Error(status.failure());
  check_range("--steps", options.steps, 1, 1000, "3");
  const train::ResolvedRun run = resolve_train(env, launch, options.train);
  const int ranks = run.config.layout.world();
  check_range("--rank", options.rank, 0, ranks - 1, "0");
  const std::unique_ptr<Log> log = make_stderr_log();
  const train::StepProfile profile =
      train::profile_steps(env, *log, run, static_cast<int>(options.steps), static_cast<int>(options.rank));
  const std::vector<report::KernelRow> rows = report::kernel_rows(
      profile.kernels, {.flops_per_s = profile.gemm_flops_per_s, .bytes_per_s = profile.copy_bytes_per_s},
      options.shapes);
  if (options.train.json) {
    fmt::print("{}\n", Json::object({{"kernels", report::kernel_json(rows)},
                                     {"step_s", profile.step_s},
                                     {"waited_s", profile.waited_s},
                                     {"tokens_per_s", profile.tokens / profile.step_s},
                                     {"model_flops", profile.model_flops},
                                     {"gemm_flops_per_s", profile.gemm_flops_per_s},
                                     {"copy_bytes_per_s", profile.copy_bytes_per_s}})
                           .dump(2));
  } else {
    print(profile, rows, ranks);
  }
  return ExitCode::kDone;
}

}  // namespace

void declare_bench(Command& root, Env& env) {
  Command& bench = root.command("bench", "Measure this machine");
  auto options = std::make_shared<StepOptions>();
  Command& command = bench.command("step", "Where the time of a training step goes, by kernel, against its limit");
  declare_train_options(command, options->train);
  command.option("steps", options->steps, "steps that are measured, after one that is not");
  command.option("rank", options->rank, "whose kernels");
  command.flag("shapes", options->shapes, "products by their shapes");
  command.examples(
      "  trireme bench step examples/runs/demo.toml\n"
      "  trireme bench step run.toml --layout.dp 2 --train.threads 1 --shapes\n");
  command.run([options, &env] { return run_step(env, *options); });
}

}  // namespace trireme::cli
