#include "cli/worker_command.h"

#include <fmt/format.h>

#include "base/words.h"

namespace trireme::cli {
namespace {

using Words = std::vector<std::string>;

constexpr const char* kVariables[] = {"TRIREME_CONTROL",     "TRIREME_SECRET",    "TRIREME_INCARNATION",
                                      "TRIREME_RUN_ELAPSED", "TRIREME_GEMM_RATE", "TRIREME_RANKS",
                                      kRunVariable,          "TRIREME_LAUNCHER"};

// What an mpirun or srun has told the shell that this program was started in: of another start than that of the ranks.
constexpr const char* kOfOtherStarts[] = {"OMPI_COMM_WORLD_",
                                          "OMPI_UNIVERSE_SIZE",
                                          "OMPI_MCA_ess",
                                          "OMPI_MCA_orte_hnp_uri",
                                          "OMPI_MCA_orte_ess_",
                                          "OMPI_MCA_orte_local_",
                                          "OMPI_MCA_orte_num_",
                                          "OMPI_MCA_orte_app_num",
                                          "OMPI_MCA_orte_jobfam_",
                                          "OMPI_MCA_orte_top_session",
                                          "OMPI_MCA_orte_launch",
                                          "OMPI_MCA_orte_bound_at_launch",
                                          "PMIX_RANK",
                                          "PMIX_NAMESPACE",
                                          "PMIX_SERVER_",
                                          "PMIX_ID",
                                          "PMI_"};

void add(Words& words, const Words& more) { words.insert(words.end(), more.begin(), more.end()); }

// A launcher with flags of its user's.
Words launcher_words(const std::string& text) {
  const std::vector<std::string_view> words = words_of(text);
  return {words.begin(), words.end()};
}

// Every key of the layout as it is now, whatever a change of hosts has made of what was asked for. Where groups may be
// is not changed by that.
Words layout_words(const plan::Layout& layout) {
  train::RunConfig config;
  config.layout = layout;
  Words words;
  for (const train::RunKey& key : train::run_keys()) {
    if (!key.name.starts_with("layout.") || key.name == "layout.allow_slow_tp") continue;
    const Json value = key.get(config);
    add(words, {"--" + key.name, value.is_string() ? value.as_string() : value.dump()});
  }
  return words;
}

// The worker's own part: what this start is, beside the run's description.
Words worker_words(const WorkerCommands& commands, const supervisor::WorkerStart& start, const LeftByStarts& left) {
  Words words{commands.program, "worker"};
  const auto set = [&](const std::string& key, const std::string& value) { add(words, {"--" + key, value}); };
  set("out.directory", commands.out);
  add(words, layout_words(start.layout));
  if (commands.saves) {
    if (start.begun) set("out.overwrite", "false");
    if (start.begun && left.checkpoint) set("checkpoint.resume", "");
  } else if (start.again && !left.checkpoint) {
    set("out.overwrite", "true");  // nothing to go on from: it begins anew, over what its own starts have left
  }
  if (commands.trace_first > 0 && !traces(commands, start, left)) {
    set("out.trace", "");
    set("out.trace_steps", "");
  }
  if (!commands.inject.empty()) add(words, {"--inject", commands.inject});
  return words;
}

// Ranks of several hosts, one group of words after the other: ranks fill the hosts in their order.
Words mpirun_words(const WorkerCommands& commands, const supervisor::WorkerStart& start, const Words& worker) {
  Words words = launcher_words(commands.supervise.mpirun);
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
  Words words = launcher_words(commands.supervise.srun);
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

std::vector<std::string> of_other_starts() { return {std::begin(kOfOtherStarts), std::end(kOfOtherStarts)}; }

}  // namespace

bool traces(const WorkerCommands& commands, const supervisor::WorkerStart& start, const LeftByStarts& left) {
  if (commands.trace_first == 0) return false;
  return !start.begun || (!left.trace && left.checkpoint.value_or(0) < commands.trace_first);
}

ChildCommand worker_command(const WorkerCommands& commands, const supervisor::WorkerStart& start,
                            const LeftByStarts& left) {
  const Words worker = worker_words(commands, start, left);
  ChildCommand command{.arguments = worker, .environment = {}, .file = kOwnProgram};
  if (commands.launcher != train::Launcher::kThreads) command.file.clear();
  if (commands.launcher == train::Launcher::kMpirun) {
    command.arguments = mpirun_words(commands, start, worker);
    command.deaf = true;  // it would end all ranks 2 s after such a signal
  }
  command.captured = commands.launcher != train::Launcher::kThreads;
  command.without = of_other_starts();
  if (commands.launcher == train::Launcher::kSrun) command.arguments = srun_words(commands, start, worker);
  const std::string values[] = {start.address,
                                start.secret,
                                fmt::format("{}", start.incarnation),
                                fmt::format("{}", start.run_elapsed_s),
                                fmt::format("{}", start.gemm_flops_per_s),
                                fmt::format("{}", start.layout.world()),
                                commands.run,
                                std::string(train::launcher_name(commands.launcher))};
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
  command.arguments = launcher_words(slurm ? commands.supervise.srun : commands.supervise.mpirun);
  if (slurm) {
    add(command.arguments, {"--ntasks=1", "--nodes=1", "--nodelist=" + host});
  } else {
    if (commands.root) command.arguments.push_back("--allow-run-as-root");
    add(command.arguments, {"-n", "1", "-host", host + ":1"});
  }
  add(command.arguments, {commands.program, "--help"});
  command.output = "/dev/null";
  command.without = of_other_starts();
  return command;
}

}  // namespace trireme::cli
