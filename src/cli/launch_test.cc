#include "cli/launch.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace trireme::cli {
namespace {

using train::Launcher;

TEST(LaunchOfRun, AShellOfALauncherIsNoRank) {
  for (const char* launcher : {"srun", "mpirun", "mpiexec"}) {
    for (const Launcher named : {Launcher::kAuto, Launcher::kThreads, Launcher::kMpirun, Launcher::kNone}) {
      EXPECT_EQ(launch_of_run({launcher, 1, 1, 0}, named).launcher, "none") << launcher;
    }
  }
}

TEST(LaunchOfRun, WhoIsNamedStartsTheRanks) {
  const comm::Launch four{"mpirun", 4, 4, 0};
  EXPECT_EQ(launch_of_run(four, Launcher::kAuto).launcher, "mpirun");
  EXPECT_EQ(launch_of_run(four, Launcher::kNone).ranks, 4);
  EXPECT_EQ(launch_of_run(four, Launcher::kThreads).launcher, "none");
  EXPECT_EQ(launch_of_run(four, Launcher::kSrun).ranks, 1);
}

TEST(LaunchOfRun, ASecondProcessIsRefused) {
  try {
    launch_of_run({"srun", 4, 2, 3}, Launcher::kThreads);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    EXPECT_NE(std::string(error.what()).find("this is rank 3 of 4 that srun has started"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace trireme::cli
