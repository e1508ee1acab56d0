#include "cli/train_options.h"

#include <fmt/format.h>

#include "cli/cluster_mtbf.h"
#include "cli/launch.h"
#include "cli/memory_limit.h"

namespace trireme::cli {

void declare_train_options(Command& command, TrainOptions& options) {
  command.positional("run", options.file, "run.toml", true);
  command.option("out", options.out, "run directory (out.directory)");
  command.option("trace", options.trace, "file for a timeline of all ranks, which Perfetto shows (out.trace)");
  command.option("trace-steps", options.trace_steps, "steps that it shows: 3-5 (out.trace_steps)");
  command.flag("allow-slow-tp", options.allow_slow_tp, "tensor-parallel ranks may be on different hosts");
  command.option("memory-limit", options.memory_limit, "what a rank may hold: 8GB, 512MiB (train.memory_limit)");
  command.option("resume", options.resume, "checkpoint, or run, to start from (checkpoint.resume)");
  command.option("accept", options.accept, "keys that may differ from the checkpoint's run (checkpoint.accept)");
  command.flag("overwrite", options.overwrite, "write into a run directory that exists");
  command.flag("json", options.json, "one JSON object on standard output");
  command.option("inject", options.inject, "faults to plant, as trireme drill does: kill:rank=1,step=3,phase=backward");
  command.settings(options.settings);
}

std::vector<std::pair<std::string, std::string>> all_settings(const TrainOptions& options) {
  const std::pair<const char*, const std::string*> texts[] = {{"--out", &options.out},
                                                              {"--trace", &options.trace},
                                                              {"--trace-steps", &options.trace_steps},
                                                              {"--resume", &options.resume},
                                                              {"--accept", &options.accept}};
  for (const auto& [option, value] : texts) {
    if (value->rfind("--", 0) != 0) continue;
    throw Error(Failure{.option = option, .value = *value, .rule = "needs a value", .nearest = ""});
  }
  std::vector<std::pair<std::string, std::string>> settings = options.settings;
  const std::pair<const char*, const std::string*> named[] = {
      {"out.directory", &options.out},           {"out.trace", &options.trace},
      {"out.trace_steps", &options.trace_steps}, {"train.memory_limit", &options.memory_limit},
      {"checkpoint.resume", &options.resume},    {"checkpoint.accept", &options.accept}};
  for (const auto& [key, value] : named) {
    if (!value->empty()) settings.emplace_back(key, *value);
  }
  if (options.allow_slow_tp) settings.emplace_back("layout.allow_slow_tp", "true");
  if (options.overwrite) settings.emplace_back("out.overwrite", "true");
  return settings;
}

RunDescription read_run(Env& env, const TrainOptions& options) {
  if (!options.inject.empty()) (void)train::parse_planned_faults(options.inject).or_throw();
  RunDescription description;
  train::RunConfig& config = description.config;
  config = train::load_run_config(env, options.file, all_settings(options)).or_throw();
  if (config.cluster.empty()) return description;
  description.cluster = load_run_cluster(env, config.cluster).or_throw();
  if (config.mtbf.count == 0) {
    config.mtbf = cluster_mtbf(*description.cluster, config.cluster, config.layout.world()).or_throw();
  }
  return description;
}

train::ResolvedRun resolve_train(Env& env, const comm::Launch& launch, const RunDescription& description) {
  const train::RunConfig& config = description.config;
  if (Status status = check_launch(launch, config.layout); !status) throw Error(status.failure());
  const int ranks_here = launch.launcher == "none" ? 0 : launch.ranks_here;
  train::ResolvedRun run = train::resolve_run(
      env, config, {.model = description.model, .ranks_here = ranks_here, .backend = backend_of(launch)});
  if (Status status = check_memory_limit(env, run); !status) throw Error(status.failure());
  return run;
}

}  // namespace trireme::cli
