// The command that a supervisor starts: the ranks of one process, in a child of it.

#include <atomic>
#include <csignal>
#include <utility>

#include <fmt/format.h>

#include "base/child.h"
#include "base/process.h"
#include "base/shared_pages.h"
#include "base/socket.h"
#include "base/stop_signals.h"
#include "cli/commands.h"
#include "cli/launch.h"
#include "cli/train_ranks.h"
#include "telemetry/control_line.h"

namespace trireme::cli {
namespace {

constexpr Seconds kTurn{0.02};
constexpr double kFenceMargin_s = 0.5;

using Cells = std::span<train::ProgressCell>;

// Some schedulers signal the ranks alone.
void tell_stop_signals(telemetry::ControlLine& line, StopCounts& told) {
  const StopCounts counts = stop_counts();
  if (std::exchange(told.preempted, counts.preempted) != counts.preempted) line.send(telemetry::StopHeard{true});
  if (std::exchange(told.user, counts.user) != counts.user) line.send(telemetry::StopHeard{false});
}

// The keeper's side of a process, until that is gone; its exit code as the keeper's own.
int keep(Env& env, const Supervised& supervised, const std::vector<int>& ranks, Cells cells, Child& child) {
  std::atomic<bool> over = false;  // the run is, here: by the supervisor's word, or because it is gone
  std::atomic<bool> gone = false;
  std::atomic<bool> stand_still = false;  // until the supervisor speaks again
  const std::unique_ptr<telemetry::ControlLine> line =
      telemetry::open_control_line({.address = supervised.by.address,
                                    .hello = {.secret = supervised.by.secret,
                                              .incarnation = supervised.by.incarnation,
                                              .keeper = true,
                                              .ranks = ranks,
                                              .host = env.host_name(),
                                              .process = child.id()},
                                    .take =
                                        [&](const telemetry::Message& message) {
                                          if (std::holds_alternative<telemetry::Kill>(message)) over = true;
                                        },
                                    .regular = nullptr,
                                    .gone =
                                        [&](const std::string&) {
                                          gone = true;
                                          over = true;
                                        },
                                    .silent = [&](bool silent) { stand_still = silent; }});
  // mpirun signals all ranks where one has ended, and the supervisor is beside it.
  const bool tells_signals = !was_started_by(train::Launcher::kMpirun);
  StopCounts told;
  bool stands_still = false;
  for (;;) {
    std::vector<Waited> waited{{.descriptor = child.descriptor()}};
    wait_for_any(waited, kTurn);
    if (const bool still = stand_still; std::exchange(stands_still, still) != still) {
      child.signal(still ? SIGSTOP : SIGCONT);
    }
    if (tells_signals) tell_stop_signals(*line, told);
    if (over) child.signal(SIGKILL);
    const std::optional<ChildEnd> end = child.poll();
    if (!end) continue;
    telemetry::ProcessEnded ended{.signal = end->signal, .code = end->code, .ranks = {}};
    for (std::size_t i = 0; i < ranks.size(); ++i) ended.ranks.push_back(train::progress_of(cells[i], ranks[i]));
    line->send(ended);
    line->flush(1.0);
    // A process that finds the supervisor gone may do so before its keeper does.
    const bool in_order = end->signal == 0 && end->code == 0;
    const double until = env.now().count + telemetry::kFence_s + kFenceMargin_s;
    while (!in_order && !over && env.now().count < until) env.sleep(kTurn);
    // A daemon of mpirun on a host that is cut off never hears that its job is at an end, and would wait for ever.
    if (gone) end_parent_called("orted");
    return end->signal != 0 ? 128 + end->signal : end->code;
  }
}

// The ranks run in a child of this process, which tells how that ended, and ends it when told to.
ExitCode work(Env& env, const TrainOptions& options) {
  const std::optional<Supervised> supervised = current_supervision();
  if (!supervised || supervised->ranks < 1 || supervised->run.empty()) {
    throw Error(Failure{.option = "worker",
                        .value = "",
                        .rule = "is started by the supervisor of a run, which tells it where to report",
                        .nearest = "trireme train"});
  }
  const comm::Launch launch = launch_of_worker();
  const std::vector<int> ranks = own_ranks(launch, supervised->ranks);
  const SharedPages pages(ranks.size() * sizeof(train::ProgressCell));
  const Cells cells(new (pages.bytes().data()) train::ProgressCell[ranks.size()], ranks.size());
  if (const std::unique_ptr<Child> child = fork_child()) {
    catch_supervisor_signals();
    name_this_process("trireme-keeper");
    return static_cast<ExitCode>(keep(env, *supervised, ranks, cells, *child));
  }
  name_this_process("trireme-rank");
  const RunDescription run = description_of(supervised->run, options.settings);
  return train_ranks(env, launch, resolve_train(env, launch, run), options, supervised, cells);
}

}  // namespace

void declare_worker(Command& root, Env& env) {
  auto options = std::make_shared<TrainOptions>();
  Command& command = root.command("worker", "What trireme train starts: the ranks of a run");
  command.option("inject", options->inject, "faults to plant");
  command.settings(options->settings);
  command.run([options, &env] { return work(env, *options); });
}

}  // namespace trireme::cli
