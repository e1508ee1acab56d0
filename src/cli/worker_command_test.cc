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
    EXPECT_EQ(layout_of(worker_command(commands, start, false)), one) << plan::describe(one);
  }
}

TEST(WorkerCommand, LauncherMayHaveFlagsOfItsUser) {
  WorkerCommands commands{.program = "trireme", .supervise = {}, .run = "", .out = "runs/one", .inject = ""};
  commands.launcher = train::Launcher::kMpirun;
  commands.supervise.mpirun = "/opt/mpi/bin/mpirun  --mca btl tcp,self";
  supervisor::WorkerStart start;
  start.placement.hosts = {{.name = "a", .slots = 1}};
  const std::vector<std::string> words = worker_command(commands, start, false).arguments;
  EXPECT_EQ(std::vector<std::string>(words.begin(), words.begin() + 4),
            (std::vector<std::string>{"/opt/mpi/bin/mpirun", "--mca", "btl", "tcp,self"}));
}

}  // namespace
}  // namespace trireme::cli
