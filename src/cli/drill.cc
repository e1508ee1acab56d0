// trireme drill: the user's own run, a few steps of it, once unbroken and once for each fault.

#include <algorithm>
#include <bit>
#include <csignal>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/child.h"
#include "base/socket.h"
#include "base/words.h"
#include "cli/commands.h"
#include "cli/launch.h"
#include "cli/supervised_train.h"
#include "engine/train/run_directory.h"
#include "report/drill_table.h"
#include "supervisor/hosts.h"
#include "supervisor/incident.h"
#include "telemetry/step_record.h"

namespace trireme::cli {
namespace {

struct DrillFault {
  std::string name;    // what --faults calls it
  std::string inject;  // "" : done from outside
  ExitCode exit = ExitCode::kDone;
  int signal = 0;       // to the supervisor, once `step` is done
  bool goes_on = true;  // to the last step, after a second start where it had ended
};

struct DrillOptions {
  TrainOptions train;
  std::string faults = "all";
  std::int64_t steps = 12;
  double limit_s = 600;  // of one run
};

// Where each fault strikes: in a step that is no multiple of the interval of saves, so that some are to do again.
std::vector<DrillFault> faults_of(std::int64_t steps, std::int64_t interval, int ranks, DType precision) {
  const std::int64_t step = std::max<std::int64_t>(interval + 1, steps / 2 + 1);
  const std::int64_t save = (step / interval) * interval;
  const int rank = ranks - 1;
  std::vector<DrillFault> faults;
  for (const char* phase : {"forward", "backward", "reduce", "optimizer"}) {
    faults.push_back({.name = fmt::format("kill-{}", phase),
                      .inject = fmt::format("kill:rank={},step={},phase={}", rank, step, phase)});
  }
  faults.push_back({.name = "kill-save", .inject = fmt::format("kill:rank={},step={},phase=save", rank, save)});
  for (const std::string_view kind : {"segv", "stop", "hang", "nan"}) {
    // A step whose scaled gradient is not finite is left out, which is no failure.
    if (kind == "nan" && precision == DType::kF16) continue;
    faults.push_back({.name = std::string(kind), .inject = fmt::format("{}:rank={},step={}", kind, rank, step)});
  }
  // Late, so that there is an older checkpoint to fall back on.
  faults.push_back({.name = "flip", .inject = fmt::format("flip:rank={},step={}", rank, steps)});
  faults.push_back({.name = "disk-full", .inject = fmt::format("disk-full:rank={},step={}", rank, save)});
  faults.push_back({.name = "crash-loop",
                    .inject = fmt::format("kill:rank={},step={},times=always", rank, step),
                    .exit = ExitCode::kNoProgress,
                    .goes_on = false});
  faults.push_back({.name = "preempt", .inject = "", .exit = ExitCode::kPreempted, .signal = SIGTERM});
  faults.push_back({.name = "supervisor", .inject = "", .signal = SIGKILL});
  return faults;
}

std::vector<DrillFault> chosen(const std::vector<DrillFault>& all, const std::string& text) {
  if (text == "all") return all;
  std::vector<DrillFault> faults;
  std::vector<std::string> names;
  for (const DrillFault& fault : all) names.push_back(fault.name);
  for (const std::string_view name : split(text, ',')) {
    const auto found = std::ranges::find(all, name, &DrillFault::name);
    if (found == all.end()) {
      throw Error(Failure{.option = "--faults",
                          .value = std::string(name),
                          .rule = "is no fault of a drill",
                          .nearest = fmt::format("all, {}", fmt::join(names, ", "))});
    }
    faults.push_back(*found);
  }
  return faults;
}

using Curve = std::vector<std::pair<std::int64_t, std::uint64_t>>;  // step, bits of the loss

class Drill {
 public:
  // The run as it was described when the drill began is in the drill's own directory: all of its runs train that.
  Drill(Env& env, const DrillOptions& options, const RunDescription& description, const train::ResolvedRun& run)
      : env_(env), options_(options), out_(run.config.out) {
    const std::string model = join_path(out_, "config.json");
    env.write_file_atomically(model, model::to_hugging_face(run.plan.table.config).dump(2));
    train::RunConfig config = description.config;
    config.model_config = model;
    if (!config.supervise.hosts.empty()) {
      config.supervise.hosts = supervisor::to_text(supervisor::load_hosts(env, config.supervise.hosts).or_throw());
    }
    env.write_file_atomically(run_file(), train::to_toml(config));
    const std::int64_t interval = std::max<std::int64_t>(2, options.steps / 3);
    all_ = faults_of(options.steps, interval, run.config.layout.world(), run.config.precision);
    const std::pair<const char*, std::string> own[] = {{"train.steps", fmt::format("{}", options.steps)},
                                                       {"checkpoint.interval", fmt::format("{}", interval)},
                                                       {"checkpoint.mtbf", ""},
                                                       {"checkpoint.cluster", ""},
                                                       {"optimizer.decay", "constant"},
                                                       {"optimizer.warmup_steps", "0"},
                                                       {"optimizer.decay_steps", "0"},
                                                       {"optimizer.min_learning_rate", "0"},
                                                       {"supervise.backoff", "0.1s"},
                                                       {"supervise.retries", "2"},
                                                       {"out.trace", ""},
                                                       {"out.trace_steps", ""},
                                                       {"out.overwrite", "false"}};
    for (const auto& [key, value] : own) settings_.emplace_back(key, value);
  }

  std::vector<report::DrillRow> run() {
    const std::vector<DrillFault> faults = chosen(all_, options_.faults);
    if (start_and_wait("unbroken", "", 0) != 0) {
      throw Error(ExitCode::kUsage, "drill", "the unbroken run", "did not end in order",
                  fmt::format("see {}", log_of("unbroken")));
    }
    const Curve unbroken = curve("unbroken");
    std::vector<report::DrillRow> rows;
    for (const DrillFault& fault : faults) {
      fmt::print(stderr, "drill: {} ({} of {})\n", fault.name, rows.size() + 1, faults.size());
      rows.push_back(one(fault, unbroken));
    }
    return rows;
  }

 private:
  std::string run_file() const { return join_path(out_, "run.toml"); }
  std::string directory(const std::string& name) const { return join_path(out_, name); }
  std::string log_of(const std::string& name) const { return join_path(out_, name + ".log"); }

  report::DrillRow one(const DrillFault& fault, const Curve& unbroken) {
    report::DrillRow row;
    row.fault = fault.name;
    row.planted = !fault.inject.empty();
    row.exit_code = start_and_wait(fault.name, fault.inject, fault.signal);
    const int expected = fault.signal == SIGKILL ? 128 + SIGKILL : static_cast<int>(fault.exit);
    row.exit_as_expected = row.exit_code == expected;
    if (fault.signal != 0 && row.exit_as_expected) {
      const int again = start_and_wait(fault.name, "", 0);
      row.remark = fmt::format("the same command again: exit {}", again);
      row.exit_as_expected = again == 0;
    }
    fill_from_incidents(fault.name, row);
    if (row.planted && row.detected_as.empty()) row.remark = "it never happened";
    if (fault.goes_on) row.curve_equal = curve(fault.name) == unbroken;
    return row;
  }

  void fill_from_incidents(const std::string& name, report::DrillRow& row) {
    for (const supervisor::IncidentLine& line : supervisor::read_incidents(env_, directory(name)).or_throw()) {
      if (const auto* incident = std::get_if<supervisor::Incident>(&line)) {
        fill(*incident, row);
      } else {
        fill(std::get<supervisor::Recovery>(line), row);
      }
    }
  }
  // The first of each is what the fault has brought about.
  static void fill(const supervisor::Incident& incident, report::DrillRow& row) {
    if (!row.detected_as.empty()) return;
    row.detected_as = std::string(supervisor::failure_name(incident.kind));
    const std::vector<int>& ranks = incident.ranks;
    if (!ranks.empty())
      row.detected_as += fmt::format(": rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
    row.detected_after_s = incident.detected_after_s;
  }
  static void fill(const supervisor::Recovery& recovery, report::DrillRow& row) {
    if (!row.recovery.empty()) return;
    row.steps_lost = recovery.steps_lost;
    row.recovery = {{"end", recovery.end_s},   {"wait", recovery.wait_s},     {"launch", recovery.launch_s},
                    {"load", recovery.load_s}, {"repeat", recovery.repeat_s}, {"next", recovery.next_s}};
  }

  Curve curve(const std::string& name) {
    Curve curve;
    for (const telemetry::StepRecord& line : telemetry::read_steps(env_, train::metrics_of(directory(name)))) {
      curve.emplace_back(line.step, std::bit_cast<std::uint64_t>(line.loss));
    }
    return curve;
  }

  // Exit code, 128 + the signal where one ended it.
  int start_and_wait(const std::string& name, const std::string& inject, int signal) {
    ChildCommand command{.arguments = {own_program(), "train", run_file()}, .environment = {}, .file = kOwnProgram};
    for (const auto& [key, value] : settings_) {
      command.arguments.insert(command.arguments.end(), {"--" + key, value});
    }
    command.arguments.insert(command.arguments.end(), {"--out", directory(name)});
    if (!inject.empty()) command.arguments.insert(command.arguments.end(), {"--inject", inject});
    command.output = log_of(name);
    const std::unique_ptr<Child> child = start_child(command);
    const double until = env_.now().count + options_.limit_s;
    const std::size_t strikes_after = static_cast<std::size_t>(options_.steps / 2 + 1);
    while (env_.now().count < until) {
      std::vector<Waited> waited{{.descriptor = child->descriptor()}};
      wait_for_any(waited, Seconds{0.02});
      if (const std::optional<ChildEnd> end = child->poll()) return end->signal != 0 ? 128 + end->signal : end->code;
      if (signal == 0 || curve(name).size() < strikes_after) continue;
      child->signal(signal);
      signal = 0;
    }
    throw Error(ExitCode::kHang, "drill", name, fmt::format("did not end within {} s", options_.limit_s),
                fmt::format("see {}", log_of(name)));
  }

  Env& env_;
  const DrillOptions& options_;
  const std::string out_;
  std::vector<DrillFault> all_;
  std::vector<std::pair<std::string, std::string>> settings_;
};

ExitCode run_drill(Env& env, const DrillOptions& options) {
  const comm::Launch launch = launch_of_run(current_launch(), train::Launcher::kAuto);
  if (Status status = check_alone(launch, "drill"); !status) throw Error(status.failure());
  check_range("--steps", options.steps, 3, 1'000'000, "12");
  if (!(options.limit_s >= 1 && options.limit_s <= 1e9)) {
    throw Error(Failure{.option = "--limit",
                        .value = fmt::format("{}", options.limit_s),
                        .rule = "must be seconds from 1 to 1e9",
                        .nearest = "600"});
  }
  const RunDescription description = read_run(env, options.train);
  const train::ResolvedRun run = resolve_train(env, launch, description);
  if (run.config.supervise.launcher == train::Launcher::kNone) {
    throw Error(Failure{.option = "supervise.launcher",
                        .value = "none",
                        .rule = "a drill is of supervised runs",
                        .nearest = "threads, mpirun, srun"});
  }
  if (env.exists(run.config.out) && !env.list_directory(run.config.out).empty()) {
    throw Error(Failure{.option = "out.directory",
                        .value = run.config.out,
                        .rule = "is not empty, and a drill has its own runs there",
                        .nearest = "another --out"});
  }
  env.make_directories(run.config.out);
  const std::vector<report::DrillRow> rows = Drill(env, options, description, run).run();
  if (options.train.json) {
    fmt::print("{}\n", report::drill_json(rows).dump(2));
  } else {
    fmt::print("{}", report::drill_table(rows));
  }
  return std::ranges::all_of(rows, &report::DrillRow::well) ? ExitCode::kDone : ExitCode::kInternal;
}

}  // namespace

void declare_drill(Command& root, Env& env) {
  auto options = std::make_shared<DrillOptions>();
  Command& command = root.command("drill", "Plant faults into your own run, and see what each costs");
  declare_train_options(command, options->train);
  command.option("faults", options->faults, "which, with commas, or all");
  command.option("steps", options->steps, "steps of each run, at a constant learning rate; it saves three times");
  command.option("limit", options->limit_s, "seconds that one run may take");
  command.examples(
      "  trireme drill examples/runs/small.toml --out runs/drill\n"
      "  trireme drill run.toml --out runs/drill --faults kill-backward,hang --supervise.launcher mpirun\n");
  command.run([options, &env] { return run_drill(env, *options); });
}

}  // namespace trireme::cli
