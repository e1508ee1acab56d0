#include "cli/worker_command.h"

#include <gtest/gtest.h>

namespace trireme::cli {
namespace {

// What the worker that these words start will train.
plan::Layout layout_of(const ChildCommand& command) {
  std::vector<std::pair<std::string, std::string>> settings;
  for (std::size_t i = 2; i + 1 < command.arguments.size(); i += 2) {
    settings.emplace_back(command.arguments[i].substr(2), command.arguments[i + 1]);
  }
  const Json file = Json::object({{"model", Json::object({{"config", "model"}})},
                                  {"data", Json::object({{"train", "tokens"}})},
                                  {"layout", Json::object({{"tp", 8}, {"bucket", 5}})}});
  return train::make_run_config(file, settings).value().layout;
}

TEST(WorkerCommand, SaysTheWholeLayout) {
  plan::Layout layout{.tp = 2, .pp = 4, .dp = 3, .interleave = 2};
  layout.schedule = plan::ScheduleKind::kInterleaved;
  layout.zero = 3;
  layout.reduce = plan::ReduceWhen::kMicrobatch;
  layout.all_reduce = ReduceAlgorithm::kRing;
  layout.recompute = model::Recompute::kFull;
  layout.order = plan::AxisOrder::kTpDpPp;
  layout.sequence_parallel = true;
  layout.bucket = 12345;
  layout.overlap = false;
  layout.prefetch = 4;
  const WorkerCommands commands{.program = "trireme", .supervise = {}, .run = "", .out = "runs/one", .inject = ""};
  supervisor::WorkerStart start;
  for (const plan::Layout& one : {layout, plan::Layout{}}) {
    start.layout = one;
    EXPECT_EQ(layout_of(worker_command(commands, start, {})), one) << plan::describe(one);
  }
}

TEST(WorkerCommand, LauncherMayHaveFlagsOfItsUser) {
  WorkerCommands commands{.program = "trireme", .supervise = {}, .run = "", .out = "runs/one", .inject = ""};
  commands.launcher = train::Launcher::kMpirun;
  commands.supervise.mpirun = "/opt/mpi/bin/mpirun  --mca btl tcp,self";
  supervisor::WorkerStart start;
  start.placement.hosts = {{.name = "a", .slots = 1}};
  const std::vector<std::string> words = worker_command(commands, start, {}).arguments;
  EXPECT_EQ(std::vector<std::string>(words.begin(), words.begin() + 4),
            (std::vector<std::string>{"/opt/mpi/bin/mpirun", "--mca", "btl", "tcp,self"}));
}

std::optional<std::string> setting_of(const ChildCommand& command, const std::string& key) {
  std::optional<std::string> value;
  for (std::size_t i = 0; i + 1 < command.arguments.size(); ++i) {
    if (command.arguments[i] == "--" + key) value = command.arguments[i + 1];
  }
  return value;
}

TEST(WorkerCommand, ARunWithoutCheckpointsBeginsAnewOverItsOwnFiles) {
  WorkerCommands commands{.program = "trireme", .supervise = {}, .run = "", .out = "runs/one", .inject = ""};
  supervisor::WorkerStart start;
  for (const bool saves : {false, true}) {
    commands.saves = saves;
    start = {};
    EXPECT_EQ(setting_of(worker_command(commands, start, {}), "out.overwrite"), std::nullopt);
    start.again = true;  // and it had not begun: what the user has consented to stands
    EXPECT_EQ(setting_of(worker_command(commands, start, {}), "out.overwrite"),
              saves ? std::nullopt : std::optional<std::string>("true"));
    start.begun = true;
    EXPECT_EQ(setting_of(worker_command(commands, start, {}), "out.overwrite"), saves ? "false" : "true");
  }
  // It goes on from a checkpoint of its own directory that it was told to resume from, and keeps that.
  commands.saves = false;
  EXPECT_EQ(setting_of(worker_command(commands, start, {.checkpoint = 4}), "out.overwrite"), std::nullopt);
  EXPECT_EQ(setting_of(worker_command(commands, start, {.checkpoint = 4}), "checkpoint.resume"), std::nullopt);
}

TEST(WorkerCommand, AnotherStartIsNotRefusedForTheTraceOfTheFirst) {
  WorkerCommands commands{.program = "trireme", .supervise = {}, .run = "", .out = "runs/one", .inject = ""};
  commands.trace_first = 3;
  supervisor::WorkerStart start;
  EXPECT_EQ(setting_of(worker_command(commands, start, {.trace = true}), "out.trace"), std::nullopt);
  start.begun = true;
  EXPECT_EQ(setting_of(worker_command(commands, start, {.checkpoint = 2}), "out.trace"), std::nullopt);
  for (const LeftByStarts& left : {LeftByStarts{.trace = true}, LeftByStarts{.checkpoint = 3}}) {
    EXPECT_EQ(setting_of(worker_command(commands, start, left), "out.trace"), "");
    EXPECT_EQ(setting_of(worker_command(commands, start, left), "out.trace_steps"), "");
  }
}

}  // namespace
}  // namespace trireme::cli
