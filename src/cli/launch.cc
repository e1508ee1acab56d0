#include "cli/launch.h"

#include <cstdlib>

#include <fmt/format.h>

#include "base/screen.h"
#include "base/stop_signals.h"
#include "engine/train/mpi_run_world.h"

namespace trireme::cli {
namespace {

std::optional<std::string> variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

// From a thread beside a call of MPI that does not come back: nothing of this process can be ended in order.
[[noreturn]] void end_process(ExitCode code, const std::string& message) {
  Screen(write_to_stderr, stderr_columns).line("trireme: " + message);
  std::_Exit(static_cast<int>(code));
}

}  // namespace

comm::Launch launch_of_run(const comm::Launch& by_variables, train::Launcher named) {
  if (by_variables.ranks == 1) return {};
  if (named == train::Launcher::kAuto || named == train::Launcher::kNone) return by_variables;
  if (by_variables.rank == 0) return {};
  throw Error(Failure{.option = "supervise.launcher",
                      .value = std::string(train::launcher_name(named)),
                      .rule = fmt::format("starts all ranks by itself, and this is rank {} of {} that {} has started",
                                          by_variables.rank, by_variables.ranks, by_variables.launcher),
                      .nearest = fmt::format("the same command once, without {}, or none", by_variables.launcher)});
}

bool was_started_by(train::Launcher launcher) { return variable("TRIREME_LAUNCHER") == train::launcher_name(launcher); }

comm::Launch launch_of_worker() {
  return was_started_by(train::Launcher::kThreads) ? comm::Launch{} : current_launch();
}

comm::Launch current_launch() { return comm::launch_of(variable); }

Status check_launch(const comm::Launch& launch, const plan::Layout& layout) {
  if (launch.launcher == "none" || launch.ranks == layout.world()) return ok_status();
  return Failure{.option = "layout",
                 .value = plan::describe(layout),
                 .rule = fmt::format("dp x tp x pp is {}, and {} has started {} rank{}", layout.world(),
                                     launch.launcher, launch.ranks, launch.ranks == 1 ? "" : "s"),
                 .nearest = fmt::format("{0} -n {1}, or degrees whose product is {2}; where variables of {0} are left "
                                        "over in this shell, --supervise.launcher threads",
                                        launch.launcher, layout.world(), launch.ranks)};
}

Status check_alone(const comm::Launch& launch, const std::string& command) {
  if (launch.ranks == 1) return ok_status();
  return Failure{.option = command,
                 .value = fmt::format("{} ranks of {}", launch.ranks, launch.launcher),
                 .rule = "runs its ranks as threads of one process",
                 .nearest = "the same command without " + launch.launcher};
}

plan::Backend backend_of(const comm::Launch& launch) {
  return launch.launcher == "none" || launch.ranks == 1 ? plan::Backend::kThreads : plan::Backend::kMessages;
}

std::unique_ptr<train::RunWorld> make_run_world(const comm::Launch& launch, Env& env, const train::RunConfig& config) {
  if (backend_of(launch) == plan::Backend::kThreads) {
    return train::make_thread_run_world(config.layout.world(), Seconds{config.start_deadline_s});
  }
  return train::make_mpi_run_world(launch, env,
                                   {.messages = {.deadline = Seconds{config.start_deadline_s}},
                                    .start_deadline = Seconds{config.start_deadline_s},
                                    .end_process = end_process,
                                    .before_send = nullptr});
}

void let_the_cause_end_first(const comm::Launch& launch, Env& env, ExitCode code) {
  if (launch.ranks == 1) return;
  const bool alike = code == ExitCode::kUsage || code == ExitCode::kDoesNotFit;
  if (code != ExitCode::kRankLost && !(alike && launch.rank > 0)) return;
  release_stop_signals();  // by which the launcher ends this process meanwhile
  env.sleep(Seconds{2});
}

}  // namespace trireme::cli
