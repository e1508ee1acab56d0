#include "cli/supervised_train.h"

#include <fmt/format.h>

#include "base/process.h"
#include "base/read_once.h"
#include "checkpoint/store.h"
#include "cli/launch.h"
#include "cli/worker_command.h"
#include "engine/train/planned_faults.h"
#include "engine/train/run_directory.h"
#include "supervisor/shell.h"

namespace trireme::cli {
namespace {

supervisor::Policy policy_of(const train::RunConfig& config) {
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

bool has_checkpoints(Env& env, const std::string& out) {
  return !checkpoint::Store(env, train::checkpoints_of(out)).steps().empty();
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

}  // namespace

train::Launcher chosen_launcher(const train::SuperviseConfig& config) {
  if (config.launcher != train::Launcher::kAuto) return config.launcher;
  if (variable_is_set("SLURM_JOB_ID")) return train::Launcher::kSrun;
  return config.hosts.empty() ? train::Launcher::kThreads : train::Launcher::kMpirun;
}

bool on_several_hosts(const train::SuperviseConfig& config) {
  return chosen_launcher(config) == train::Launcher::kSrun || (!config.hosts.empty() && !config.rehearsal);
}

ExitCode train_supervised(Env& env, const RunDescription& description, const train::ResolvedRun& run,
                          const TrainOptions& options) {
  const train::RunConfig& config = run.config;
  RunDescription handed{.config = description.config, .model = train::model_document(run), .cluster = std::nullopt};
  handed.config.model_config = config.model_config;
  const std::unique_ptr<Log> log = make_stderr_log();
  WorkerCommands commands{.program = own_program(),
                          .launcher = chosen_launcher(config.supervise),
                          .supervise = config.supervise,
                          .run = to_word(handed).or_throw(),
                          .out = config.out,
                          .inject = options.inject,
                          .cores = env.core_count(),
                          .root = runs_as_root()};
  const std::vector<supervisor::Host> hosts = hosts_of(env, config);
  const bool several = on_several_hosts(config.supervise);
  const std::string address = config.supervise.address.empty() ? env.host_name() : config.supervise.address;
  if (env.exists(supervisor::stop_file_of(config.out))) {
    throw Error(Failure{.option = "out.directory",
                        .value = config.out,
                        .rule = "holds a file `stop`, which asks a run to end",
                        .nearest = "remove it"});
  }
  // What workers would refuse, said once, before anything is touched and they are started.
  train::check_dry_run(env, *log, run, !several);
  const std::unique_ptr<checkpoint::Lease> lease = checkpoint::Lease::claim(env, config.out);
  train::remove_fault_marks(env, config.out);
  const supervisor::ReshapeProblem problem = problem_of(description, run);
  check_hosts(problem, hosts, config.supervise.hosts);
  supervisor::Decider decider(policy_of(config), [&](const std::vector<supervisor::Host>& available) {
    return supervisor::choose_layout(problem, available);
  });
  supervisor::ShellOptions shell{.out = config.out,
                                 .hosts = hosts,
                                 .hosts_file = hosts_file_of(env, config.supervise.hosts),
                                 .listen = [&] { return several ? listen_tcp(address) : listen_locally(); },
                                 .command =
                                     [&](const supervisor::WorkerStart& start) {
                                       commands.program = program_for(commands.launcher, several);
                                       return worker_command(commands, start, has_checkpoints(env, config.out));
                                     },
                                 .probe = nullptr,
                                 .least_incarnation = train::incarnation_seen(env, config.out),
                                 .each_turn = nullptr};
  if (several) shell.probe = [&](const std::string& host) { return probe_command(commands, host); };
  log->info("{}", train::describe_run(run));
  const supervisor::ShellOutcome end = supervisor::supervise(env, *log, *lease, decider, shell);
  train::remove_fault_marks(env, config.out);
  const bool in_order = end.finish.code == ExitCode::kPreempted || end.finish.code == ExitCode::kInterrupted;
  if (!end.finish.text.empty()) log->write(in_order ? LogLevel::kInfo : LogLevel::kError, end.finish.text);
  return print_end(end, config.out, options.json);
}

}  // namespace trireme::cli
