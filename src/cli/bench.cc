// trireme bench: what this machine does, measured.

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/launch.h"
#include "cli/train_options.h"
#include "cluster/cluster.h"
#include "engine/train/machine_rates.h"
#include "engine/train/step_profile.h"
#include "planner/fit.h"
#include "report/kernel_table.h"

namespace trireme::cli {
namespace {

struct StepOptions {
  TrainOptions train;
  std::int64_t steps = 3, rank = 0;
  bool shapes = false;
  std::string calibration, cluster;
};

void check_new_file(Env& env, const std::string& option, const std::string& path) {
  if (path.empty() || !env.exists(path)) return;
  throw Error(Failure{.option = option,
                      .value = path,
                      .rule = "is there already, and is not overwritten",
                      .nearest = "another " + option});
}

// Of what a step is compared with: the run on one device of a cluster.
planner::Problem calibration_problem(Env& env, const StepOptions& options, const train::ResolvedRun& run) {
  check_new_file(env, "--calibration", options.calibration);
  if (run.config.layout.world() != 1) {
    throw Error(Failure{.option = "--calibration",
                        .value = options.calibration,
                        .rule = "is of a run on one rank",
                        .nearest = "--layout.dp 1 --layout.tp 1 --layout.pp 1"});
  }
  if (options.cluster.empty()) {
    throw Error(Failure{.option = "--cluster",
                        .value = "",
                        .rule = "is needed for --calibration: the rates that its constants are shares of",
                        .nearest = "a file that trireme bench machine --out wrote"});
  }
  const plan::RunInputs& inputs = run.plan.inputs;
  planner::Problem problem =
      planner::make_problem(run.plan.table.config, cluster::load_cluster(env, options.cluster).or_throw(),
                            run.config.batch.global_batch, run.config.batch.sequence, inputs.compute,
                            planner::default_calibration(), "trireme")
          .or_throw();
  if (inputs.fp32_gradients) planner::keep_gradients_in_fp32(problem);
  return problem;
}

planner::MeasuredStep measured_step(const train::StepProfile& profile) {
  planner::MeasuredStep step{.other_s = profile.step_s};
  for (const telemetry::KernelTimes& kernel : profile.kernels) {
    if (kernel.kernel.starts_with("gemm")) step.products_s += kernel.seconds;
    if (kernel.kernel.starts_with("attention")) step.attention_s += kernel.seconds;
  }
  step.other_s -= step.products_s + step.attention_s;
  return step;
}

void write_calibration(Env& env, const StepOptions& options, const train::ResolvedRun& run,
                       const planner::Problem& problem, const train::StepProfile& profile) {
  const planner::DeviceConstants fitted = planner::fit_device(
      problem, planner::choice_of(run.config.layout, run.config.batch.micro_batch), measured_step(profile));
  env.write_file_atomically(options.calibration, planner::to_toml(problem.cluster.device.name, fitted));
}

// The model flops of a step over what products would do meanwhile. Nothing where the step is faster than any product
// that was measured or seen.
std::optional<double> model_share(const train::StepProfile& profile, const report::KernelLimits& limits, double ranks) {
  const double share = profile.model_flops / profile.step_s / ranks / limits.flops_per_s;
  return share <= 1 ? std::optional(share) : std::nullopt;
}

void print(const train::StepProfile& profile, const std::vector<report::KernelRow>& rows,
           const report::KernelLimits& limits, double ranks) {
  const std::optional<double> mfu = model_share(profile, limits, ranks);
  fmt::print("{}\n", report::kernel_table(rows, profile.step_s, profile.waited_s));
  fmt::print(
      "{:.0f} tokens/s, {:.1f} GFLOP/s of the model: {} of the rate of products, {:.1f} GFLOP/s a rank; "
      "a copy reads and writes {:.1f} GB/s in memory, {:.1f} in a cache\n",
      profile.tokens / profile.step_s, profile.model_flops / profile.step_s / 1e9,
      mfu ? fmt::format("{:.1f} %", 100 * *mfu) : "a share that is not known", limits.flops_per_s / 1e9,
      limits.bytes_per_s / 1e9, limits.cache_bytes_per_s / 1e9);
}

ExitCode run_step(Env& env, const StepOptions& options) {
  const comm::Launch launch = launch_of_run(current_launch(), train::Launcher::kAuto);
  if (Status status = check_alone(launch, "bench step"); !status) throw Error(status.failure());
  check_range("--steps", options.steps, 1, 1000, "3");
  const train::ResolvedRun run = resolve_train(env, launch, read_run(env, options.train));
  const int ranks = run.config.layout.world();
  check_range("--rank", options.rank, 0, ranks - 1, "0");
  if (options.calibration.empty() && !options.cluster.empty()) {
    throw Error(Failure{.option = "--cluster",
                        .value = options.cluster,
                        .rule = "is of a calibration alone",
                        .nearest = "--calibration FILE as well"});
  }
  std::optional<planner::Problem> problem;
  if (!options.calibration.empty()) problem = calibration_problem(env, options, run);
  const std::unique_ptr<Log> log = make_stderr_log();
  const train::StepProfile profile =
      train::profile_steps(env, *log, run, static_cast<int>(options.steps), static_cast<int>(options.rank));
  const report::KernelLimits limits = report::reached({.flops_per_s = profile.gemm_flops_per_s,
                                                       .bytes_per_s = profile.copy_bytes_per_s,
                                                       .cache_bytes_per_s = profile.cache_bytes_per_s},
                                                      profile.kernels);
  const std::vector<report::KernelRow> rows = report::kernel_rows(profile.kernels, limits, options.shapes);
  const std::optional<double> mfu = model_share(profile, limits, ranks);
  if (options.train.json) {
    fmt::print("{}\n", Json::object({{"kernels", report::kernel_json(rows)},
                                     {"step_s", profile.step_s},
                                     {"waited_s", profile.waited_s},
                                     {"tokens_per_s", profile.tokens / profile.step_s},
                                     {"model_flops", profile.model_flops},
                                     {"mfu", mfu ? Json(*mfu) : Json()},
                                     {"gemm_flops_per_s", limits.flops_per_s},
                                     {"copy_bytes_per_s", limits.bytes_per_s},
                                     {"cache_bytes_per_s", limits.cache_bytes_per_s}})
                           .dump(2));
  } else {
    print(profile, rows, limits, ranks);
  }
  if (problem) {
    write_calibration(env, options, run, *problem, profile);
    if (!options.train.json) {
      fmt::print("\n{0}: trireme plan MODEL --cluster {1} --calibration {0} --precision {2}\n", options.calibration,
                 options.cluster, plan::precision_name(run.plan.inputs.compute));
    }
  }
  return ExitCode::kDone;
}

struct MachineOptions {
  std::int64_t ranks = 0, threads = 1;
  std::string out, name = "this machine";
  bool json = false;
};

cluster::Cluster cluster_of(Env& env, const train::MachineRates& rates, const std::string& name) {
  const bool alone = rates.ranks == 1;
  cluster::Cluster cluster;
  cluster.name = name;
  cluster.devices_per_host = rates.ranks;
  cluster.device.name = fmt::format("{} core{} of {}", rates.threads, rates.threads == 1 ? "" : "s", name);
  cluster.device.memory = Bytes{env.available_memory().count / rates.ranks};
  cluster.device.bf16_flops_per_s = rates.bf16_flops_per_s;
  cluster.device.fp32_flops_per_s = rates.fp32_flops_per_s;
  cluster.device.memory_bytes_per_s = rates.copy_bytes_per_s;
  // A rank that is alone has no link: what memory gives.
  cluster.inside = {.bytes_per_s = alone ? rates.copy_bytes_per_s : rates.all_reduce_bytes_per_s,
                    .latency = alone ? Seconds{1e-6} : Seconds{rates.all_reduce_latency.count / 2}};
  cluster.between = cluster.inside;
  const std::string all = fmt::format("measured, {} rank{} at once", rates.ranks, alone ? "" : "s");
  cluster.sources = {
      {"device.memory", "what of the host was free, shared by its devices"},
      {"device.fp32", all + ": the fastest of its products, 1024 x 1024 x 1024 and those of layers"},
      {"device.bf16", all + ": a product of 1024 x 1024 x 1024"},
      {"device.memory_bandwidth", all + ": a copy of 128 MiB, read and written"},
      {"links.inside.bandwidth", alone ? "one rank: that of memory" : all + ": an all-reduce of 64 MiB"},
      {"links.inside.latency", alone ? "one rank: an assumption" : all + ": half of an all-reduce of one number"},
      {"links.between.bandwidth", "one host: as inside, an assumption"},
      {"links.between.latency", "one host: as inside, an assumption"}};
  return cluster;
}

void print(const train::MachineRates& rates) {
  fmt::print("{} rank{} x {} thread{}, all at once; of a rank\n", rates.ranks, rates.ranks == 1 ? "" : "s",
             rates.threads, rates.threads == 1 ? "" : "s");
  fmt::print("  {:<34} {:>10.1f} GFLOP/s\n", "fp32 product, the fastest", rates.fp32_flops_per_s / 1e9);
  fmt::print("  {:<34} {:>10.1f} GFLOP/s\n", "bf16 product 1024 x 1024 x 1024", rates.bf16_flops_per_s / 1e9);
  for (const train::ProductRate& product : rates.products) {
    fmt::print("  {:<34} {:>10.1f} GFLOP/s\n",
               fmt::format("fp32 product {} x {} x {}", product.rows, product.columns, product.inner),
               product.flops_per_s / 1e9);
  }
  fmt::print("  {:<34} {:>10.1f} GB/s\n", "memory, read and written", rates.copy_bytes_per_s / 1e9);
  if (rates.ranks == 1) return;
  fmt::print("  {:<34} {:>10.2f} GB/s sent\n", "all-reduce of 64 MiB", rates.all_reduce_bytes_per_s / 1e9);
  fmt::print("  {:<34} {:>10.1f} us\n", "all-reduce of one number", 1e6 * rates.all_reduce_latency.count);
}

ExitCode run_machine(Env& env, MachineOptions options) {
  if (Status status = check_alone(current_launch(), "bench machine"); !status) throw Error(status.failure());
  const int cores = env.core_count();
  check_range("--threads", options.threads, 1, cores, "1");
  if (options.ranks == 0) options.ranks = std::max<std::int64_t>(1, cores / options.threads);
  check_range("--ranks", options.ranks, 1, 1024, fmt::format("{}", cores));
  check_new_file(env, "--out", options.out);
  const std::unique_ptr<Log> log = make_stderr_log();
  const train::MachineRates rates =
      train::measure_machine(env, *log, static_cast<int>(options.ranks), static_cast<int>(options.threads));
  const std::string toml = cluster::to_toml(cluster_of(env, rates, options.name));
  if (options.json) {
    fmt::print("{}\n", Json::object({{"ranks", rates.ranks},
                                     {"threads", rates.threads},
                                     {"fp32_flops_per_s", rates.fp32_flops_per_s},
                                     {"bf16_flops_per_s", rates.bf16_flops_per_s},
                                     {"copy_bytes_per_s", rates.copy_bytes_per_s},
                                     {"all_reduce_bytes_per_s", rates.all_reduce_bytes_per_s},
                                     {"all_reduce_latency_s", rates.all_reduce_latency.count}})
                           .dump(2));
  } else {
    print(rates);
  }
  if (!options.out.empty()) {
    env.write_file_atomically(options.out, toml);
    if (!options.json) fmt::print("\n{0}: trireme plan MODEL --cluster {0} --precision fp32\n", options.out);
  }
  return ExitCode::kDone;
}

void declare_step(Command& bench, Env& env) {
  auto options = std::make_shared<StepOptions>();
  Command& command = bench.command("step", "Where the time of a training step goes, by kernel, against its limit");
  declare_train_options(command, options->train);
  command.option("steps", options->steps, "steps that are measured, after one that is not");
  command.option("rank", options->rank, "whose kernels");
  command.flag("shapes", options->shapes, "products by their shapes");
  command.option("calibration", options->calibration,
                 "where to write the planner's constants that this step shows; of one rank, with --cluster");
  command.option("cluster", options->cluster, "whose rates the constants are shares of, as bench machine wrote it");
  command.examples(
      "  trireme bench step examples/runs/small.toml\n"
      "  trireme bench step run.toml --layout.dp 2 --train.threads 1 --shapes\n"
      "  trireme bench step run.toml --train.threads 1 --cluster cluster.toml --calibration constants.toml\n");
  command.run([options, &env] { return run_step(env, *options); });
}

void declare_machine(Command& bench, Env& env) {
  auto options = std::make_shared<MachineOptions>();
  Command& command = bench.command("machine", "What this host computes, copies and sums; a cluster file for plan");
  command.option("ranks", options->ranks, "at once, as a layout has them on a host; 0: as many as there are cores for");
  command.option("threads", options->threads, "of each rank");
  command.option("out", options->out, "where to write the cluster file");
  command.option("name", options->name, "of the cluster in it");
  command.flag("json", options->json, "one JSON object on standard output");
  command.examples(
      "  trireme bench machine\n"
      "  trireme bench machine --ranks 2 --out cluster.toml\n");
  command.run([options, &env] { return run_machine(env, *options); });
}

}  // namespace

void declare_bench(Command& root, Env& env) {
  Command& bench = root.command("bench", "Measure this machine");
  declare_step(bench, env);
  declare_machine(bench, env);
}

}  // namespace trireme::cli
