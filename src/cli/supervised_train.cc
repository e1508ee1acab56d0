#include "cli/supervised_train.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/process.h"
#include "base/read_once.h"
#include "base/stop_signals.h"
#include "checkpoint/store.h"
#include "cli/launch.h"
#include "cli/launcher_advice.h"
#include "cli/worker_command.h"
#include "engine/train/planned_faults.h"
#include "engine/train/run_checks.h"
#include "engine/train/run_directory.h"
#include "supervisor/shell.h"

namespace trireme::cli {
namespace {

constexpr Seconds kWithoutEnd{1e9};

supervisor::Policy policy_of(const train::RunConfig& config, bool here) {
  const train::SuperviseConfig& supervise = config.supervise;
  supervisor::Policy policy;
  policy.retries = static_cast<int>(supervise.retries);
  policy.backoff = supervise.backoff;
  policy.grace = supervise.grace;
  policy.membership.host_failures = static_cast<int>(supervise.host_failures);
  policy.membership.cooldown = supervise.cooldown;
  policy.saves = config.save_interval.kind != train::SaveInterval::Kind::kNone;
  policy.on_straggler = supervise.stragglers == train::Stragglers::kEvict ? supervisor::OnStraggler::kEvict
                                                                          : supervisor::OnStraggler::kReport;
  policy.straggler.margin = supervise.straggler_margin;
  policy.straggler.span = supervise.straggler_span;
  policy.patience = {.start = Seconds{config.start_deadline_s},
                     .floor = supervise.hang_floor,
                     .most = Seconds{config.deadline_s},
                     .factor = supervise.hang_factor};
  if (here) policy.all_silent = kWithoutEnd;  // no network is cut: whoever is silent is stopped
  return policy;
}

// Where none are given: this one, or whatever srun takes.
std::vector<supervisor::Host> hosts_of(Env& env, const train::RunConfig& config) {
  const std::string& text = config.supervise.hosts;
  if (!text.empty()) return supervisor::load_hosts(env, text).or_throw();
  return {{.name = env.host_name(), .slots = config.layout.world()}};
}

// The file that is looked at again while the run goes on; "": there is none.
std::string hosts_file_of(Env& env, const std::string& text) {
  return !text.empty() && supervisor::names_a_file(text) && !is_read_once(env, text) ? text : "";
}

supervisor::ReshapeProblem problem_of(const RunDescription& description, const train::ResolvedRun& run) {
  return {.model = run.plan.table.config,
          .batch = run.config.batch,
          .layout = run.config.layout,
          .cluster = description.cluster,
          .memory_limit = run.config.memory_limit,
          .allow_slow_tp = run.config.allow_slow_tp,
          .inputs = run.plan.inputs};
}

// Law 3: another layout than the one that was asked for is for hosts that are lost, not for hosts that never were.
void check_hosts(const supervisor::ReshapeProblem& problem, std::vector<supervisor::Host> hosts,
                 const std::string& text) {
  std::erase_if(hosts, [](const supervisor::Host& host) { return host.spare; });
  const std::optional<supervisor::ReshapeChoice> choice = supervisor::choose_layout(problem, hosts);
  if (choice && choice->layout == problem.layout) return;
  throw Error(Failure{.option = "supervise.hosts",
                      .value = text,
                      .rule = fmt::format("have no room for {}: {} ranks, tensor groups on one host",
                                          plan::describe(problem.layout), problem.layout.world()),
                      .nearest = choice ? plan::describe(choice->layout) : "more hosts, or more slots"});
}

// By which workers are started. This process's own file also where its path has none any more, or another, which would
// be another program; on other hosts there is the path alone.
std::string program_for(train::Launcher launcher, bool several) {
  const std::string path = own_program();
  if (launcher == train::Launcher::kThreads || is_own_program(path)) return path;
  if (!several) return fmt::format("/proc/{}/exe", posix_env().process_id());
  throw Error(ExitCode::kRequeue, "supervisor", "start the workers",
              fmt::format("{} is not the program any more that this run was started with", path),
              "the same command goes on from the newest checkpoint, with the program that is there then");
}

LeftByStarts left_by_starts(Env& env, const train::RunConfig& config) {
  LeftByStarts left{.checkpoint = std::nullopt, .trace = !config.trace.empty() && env.exists(config.trace)};
  const std::vector<std::int64_t> steps = checkpoint::Store(env, train::checkpoints_of(config.out)).steps();
  if (!steps.empty()) left.checkpoint = *std::ranges::max_element(steps);
  return left;
}

ChildCommand command_of(Env& env, Log& log, const train::RunConfig& config, WorkerCommands commands,
                        const supervisor::WorkerStart& start, bool several) {
  commands.program = program_for(commands.launcher, several);
  const LeftByStarts left = left_by_starts(env, config);
  if (commands.trace_first > 0 && !left.trace && !traces(commands, start, left)) {
    log.warning("no trace: the run goes on from a step beyond {}", commands.trace_first);
  }
  return worker_command(commands, start, left);
}

// Who is told to requeue the run must be able to: one that writes no checkpoints begins anew then. What a user has
// ended stays.
void let_begin_anew(Env& env, const train::RunConfig& config) {
  if (stop_counts().user > 0 || config.save_interval.kind != train::SaveInterval::Kind::kNone) return;
  if (left_by_starts(env, config).checkpoint) return;
  env.write_file_atomically(train::unsaved_mark_of(config.out), "");
}

ExitCode print_end(const supervisor::ShellOutcome& end, const std::string& out, bool json) {
  const supervisor::Summary& summary = end.summary;
  const std::string incidents = supervisor::incidents_of(out);
  if (json) {
    Json whole = summary.outcome ? summary.outcome->json : Json::object();
    whole["exit_code"] = static_cast<std::int64_t>(end.finish.code);
    whole["goodput"] = summary.goodput();
    whole["incidents"] = summary.incidents;
    whole["launches"] = summary.launches;
    if (!end.finish.text.empty()) whole["verdict"] = end.finish.text;
    fmt::print("{}\n", whole.dump(2));
  } else {
    if (summary.outcome) fmt::print("{}", summary.outcome->text);
    if (summary.incidents > 0) {
      fmt::print("  {}  {} incident{}, goodput {:.1f} %\n", incidents, summary.incidents,
                 summary.incidents == 1 ? "" : "s", 100 * summary.goodput());
    }
  }
  return end.finish.code;
}

// mpirun starts ranks on hosts of these names beside itself. A file of hosts may come to name others.
bool all_here(Env& env, const std::string& hosts) {
  if (supervisor::names_a_file(hosts)) return false;
  return std::ranges::all_of(supervisor::load_hosts(env, hosts).or_throw(), [&](const supervisor::Host& host) {
    return host.name == "localhost" || host.name == "127.0.0.1" || host.name == env.host_name();
  });
}

// One line of what a launcher has said, where to read the rest, and what to do.
std::string told_of_launcher(Env& env, const WorkerCommands& commands, const supervisor::ShellOutcome& end,
                             const std::string& out) {
  if (commands.launcher == train::Launcher::kThreads) return end.finish.text;
  const std::string& said = end.launcher_said;
  const std::string name(train::launcher_name(commands.launcher));
  const std::string line = meaningful_line(said);
  std::string text =
      fmt::format("{} starts no rank of this run that gets on: {}", name, line.empty() ? end.finish.text : line);
  if (!said.empty()) {
    const std::string log = join_path(join_path(out, "logs"), "launcher.log");
    env.make_directories(directory_name(log));
    env.write_file_atomically(log, said);
    text += fmt::format(" (all that it has said: {})", log);
  }
  return text + "; " + launcher_advice(commands, said, mpi_types_of(commands));
}

}  // namespace

bool on_several_hosts(Env& env, const train::SuperviseConfig& config) {
  if (chosen_launcher(config) == train::Launcher::kSrun) return true;
  return !config.hosts.empty() && !config.rehearsal && !all_here(env, config.hosts);
}

ExitCode train_supervised(Env& env, const RunDescription& description, const train::ResolvedRun& run,
                          const TrainOptions& options) {
  const train::RunConfig& config = run.config;
  RunDescription handed{.config = description.config, .model = train::model_document(run), .cluster = std::nullopt};
  handed.config.model_config = config.model_config;
  const std::unique_ptr<Log> log = make_stderr_log();
  const WorkerCommands commands{.program = own_program(),
                                .launcher = chosen_launcher(config.supervise),
                                .supervise = config.supervise,
                                .run = to_word(handed).or_throw(),
                                .out = config.out,
                                .inject = options.inject,
                                .cores = env.core_count(),
                                .root = runs_as_root(),
                                .saves = config.save_interval.kind != train::SaveInterval::Kind::kNone,
                                .trace_first = config.trace.empty() ? 0 : config.trace_first};
  if (Status status = check_launcher(commands.launcher, config.supervise); !status) throw Error(status.failure());
  const std::vector<supervisor::Host> hosts = hosts_of(env, config);
  const bool several = on_several_hosts(env, config.supervise);
  const std::string address = config.supervise.address.empty() ? env.host_name() : config.supervise.address;
  if (env.exists(supervisor::stop_file_of(config.out))) {
    throw Error(Failure{.option = "out.directory",
                        .value = config.out,
                        .rule = "holds a file `stop`, which asks a run to end",
                        .nearest = "remove it"});
  }
  // What workers would refuse, said once, before anything is touched and they are started.
  train::check_dry_run(env, *log, run, !several);
  if (commands.launcher == train::Launcher::kThreads) {  // one process, which is like this one
    train::check_address_space(env, run, train::all_ranks(config.layout));
  }
  const std::unique_ptr<checkpoint::Lease> lease = checkpoint::Lease::claim(env, config.out);
  (void)train::find_start(env, config);  // again: what may have come in before the lease was this run's
  train::remove_fault_marks(env, config.out);
  const supervisor::ReshapeProblem problem = problem_of(description, run);
  check_hosts(problem, hosts, config.supervise.hosts);
  supervisor::Decider decider(policy_of(config, !several), [&](const std::vector<supervisor::Host>& available) {
    return supervisor::choose_layout(problem, available);
  });
  supervisor::ShellOptions shell{
      .out = config.out,
      .hosts = hosts,
      .hosts_file = hosts_file_of(env, config.supervise.hosts),
      .listen = [&] { return several ? listen_tcp(address) : listen_locally(); },
      .command =
          [&](const supervisor::WorkerStart& start) { return command_of(env, *log, config, commands, start, several); },
      .probe = nullptr,
      .least_incarnation = train::incarnation_seen(env, config.out),
      .each_turn = nullptr};
  if (several) shell.probe = [&](const std::string& host) { return probe_command(commands, host); };
  log->info("{}", train::describe_run(run));
  supervisor::ShellOutcome end = supervisor::supervise(env, *log, *lease, decider, shell);
  if (end.finish.never_began) end.finish.text = told_of_launcher(env, commands, end, config.out);
  train::remove_fault_marks(env, config.out);
  if (end.finish.code == ExitCode::kRequeue) let_begin_anew(env, config);
  const bool in_order = end.finish.code == ExitCode::kPreempted || end.finish.code == ExitCode::kInterrupted;
  if (!end.finish.text.empty()) log->write(in_order ? LogLevel::kInfo : LogLevel::kError, end.finish.text);
  return print_end(end, config.out, options.json);
}

}  // namespace trireme::cli
