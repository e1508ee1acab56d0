#include "cli/worker_command.h"

#include <fmt/format.h>

namespace trireme::cli {
namespace {

using Words = std::vector<std::string>;

constexpr const char* kVariables[] = {"TRIREME_CONTROL",     "TRIREME_SECRET",    "TRIREME_INCARNATION",
                                      "TRIREME_RUN_ELAPSED", "TRIREME_GEMM_RATE", "TRIREME_RANKS"};

Words split(const std::string& text) {
  Words words;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    if (end > begin) words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

void add(Words& words, const Words& more) { words.insert(words.end(), more.begin(), more.end()); }

// The worker's own part: what the run was asked for, then what this start is.
Words worker_words(const WorkerCommands& commands, const supervisor::WorkerStart& start, bool own_checkpoints) {
  Words words{commands.program, "worker", commands.file};
  const auto set = [&](const std::string& key, const std::string& value) { add(words, {"--" + key, value}); };
  for (const auto& [key, value] : commands.settings) set(key, value);
  const plan::Layout& layout = start.layout;
  set("layout.tp", fmt::format("{}", layout.tp));
  set("layout.pp", fmt::format("{}", layout.pp));
  set("layout.dp", fmt::format("{}", layout.dp));
  set("layout.interleave", fmt::format("{}", layout.interleave));
  set("layout.schedule", std::string(plan::schedule_name(layout.schedule)));
  set("layout.zero", fmt::format("{}", layout.zero));
  set("layout.reduce", std::string(plan::reduce_name(layout.reduce)));
  set("layout.recompute", std::string(model::recompute_name(layout.recompute)));
  set("layout.order", std::string(plan::axis_order_name(layout.order)));
  set("layout.sequence_parallel", layout.sequence_parallel ? "true" : "false");
  if (start.begun) set("out.overwrite", "false");
  if (start.begun && own_checkpoints) set("checkpoint.resume", "");
  if (!commands.inject.empty()) add(words, {"--inject", commands.inject});
  return words;
}

// Ranks of several hosts, one group of words after the other: ranks fill the hosts in their order.
Words mpirun_words(const WorkerCommands& commands, const supervisor::WorkerStart& start, const Words& worker) {
  Words words = split(commands.supervise.mpirun);
  bool crowded = false;
  for (const supervisor::Host& host : start.placement.hosts) {
    crowded = crowded || (commands.supervise.rehearsal ? start.placement.ranks() : host.slots) > commands.cores;
  }
  if (commands.root) words.push_back("--allow-run-as-root");
  if (crowded) add(words, {"--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"});
  // What it leaves when it is killed lies where this program finds it.
  add(words, {"--mca", "orte_tmpdir_base", start.scratch});
  bool first = true;
  for (const supervisor::Host& host : start.placement.hosts) {
    if (!first) words.push_back(":");
    first = false;
    add(words, {"-n", fmt::format("{}", host.slots)});
    if (!commands.supervise.rehearsal && !commands.supervise.hosts.empty()) {
      add(words, {"-host", fmt::format("{}:{}", host.name, host.slots)});
    }
    if (!commands.supervise.hosts.empty()) add(words, {"-x", fmt::format("TRIREME_HOST={}", host.name)});
    for (const char* variable : kVariables) add(words, {"-x", variable});
    add(words, worker);
  }
  return words;
}

Words srun_words(const WorkerCommands& commands, const supervisor::WorkerStart& start, const Words& worker) {
  Words words = split(commands.supervise.srun);
  std::string hosts;
  for (const supervisor::Host& host : start.placement.hosts) hosts += (hosts.empty() ? "" : ",") + host.name;
  const int ranks = start.placement.ranks();
  add(words, {fmt::format("--ntasks={}", ranks), "--kill-on-bad-exit=0", "--distribution=block", "--export=ALL"});
  if (!commands.supervise.hosts.empty()) {
    add(words, {fmt::format("--nodes={}", start.placement.hosts.size()), "--nodelist=" + hosts});
  }
  add(words, worker);
  return words;
}

}  // namespace

ChildCommand worker_command(const WorkerCommands& commands, const supervisor::WorkerStart& start,
                            bool own_checkpoints) {
  const Words worker = worker_words(commands, start, own_checkpoints);
  ChildCommand command{.arguments = worker, .environment = {}};
  if (commands.launcher == train::Launcher::kMpirun) command.arguments = mpirun_words(commands, start, worker);
  if (commands.launcher == train::Launcher::kSrun) command.arguments = srun_words(commands, start, worker);
  const std::string values[] = {start.address,
                                start.secret,
                                fmt::format("{}", start.incarnation),
                                fmt::format("{}", start.run_elapsed_s),
                                fmt::format("{}", start.gemm_flops_per_s),
                                fmt::format("{}", start.layout.world())};
  for (std::size_t i = 0; i < std::size(kVariables); ++i) command.environment.emplace_back(kVariables[i], values[i]);
  if (commands.root) {
    command.environment.emplace_back("OMPI_ALLOW_RUN_AS_ROOT", "1");
    command.environment.emplace_back("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
  }
  return command;
}

ChildCommand probe_command(const WorkerCommands& commands, const std::string& host) {
  ChildCommand command;
  const bool slurm = commands.launcher == train::Launcher::kSrun;
  command.arguments = split(slurm ? commands.supervise.srun : commands.supervise.mpirun);
  if (slurm) {
    add(command.arguments, {"--ntasks=1", "--nodes=1", "--nodelist=" + host});
  } else {
    if (commands.root) command.arguments.push_back("--allow-run-as-root");
    add(command.arguments, {"-n", "1", "-host", host + ":1"});
  }
  add(command.arguments, {commands.program, "--help"});
  command.output = "/dev/null";
  return command;
}

}  // namespace trireme::cli
