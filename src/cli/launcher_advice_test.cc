#include "cli/launcher_advice.h"

#include <cstdlib>

#include <gtest/gtest.h>

namespace trireme::cli {
namespace {

using train::Launcher;

TEST(LauncherAdvice, TheLineThatSaysMost) {
  EXPECT_EQ(meaningful_line("----\nssh: Could not resolve hostname nosuch: Name or service not known\n----\nORTE was "
                            "unable to reliably start\n"),
            "ssh: Could not resolve hostname nosuch: Name or service not known");
  EXPECT_EQ(meaningful_line("***\n  The application appears to have been direct launched using \"srun\",\nbut OMPI was "
                            "not built with SLURM's PMI support\n"),
            "but OMPI was not built with SLURM's PMI support");
  EXPECT_EQ(meaningful_line("usage: launcher [words]\r\nmore\n"), "usage: launcher [words]");
  EXPECT_EQ(meaningful_line("\n  \n===\n"), "");
  EXPECT_EQ(meaningful_line(std::string(5000, 'x')).size(), 200U);
}

TEST(LauncherAdvice, NamesThePmiThatIsThere) {
  WorkerCommands commands{.program = "trireme", .supervise = {}, .run = "", .out = "", .inject = ""};
  commands.launcher = Launcher::kSrun;
  const std::string said = "but OMPI was not built with SLURM's PMI support";
  EXPECT_EQ(launcher_advice(commands, said, "MPI plugin types are...\n\tnone\n\tpmi2\n\tpmix\n"),
            "this srun has pmix: --supervise.srun \"srun --mpi=pmix\"");
  EXPECT_EQ(launcher_advice(commands, said, "none pmi2"), "this srun has pmi2: --supervise.srun \"srun --mpi=pmi2\"");
  EXPECT_EQ(launcher_advice(commands, "Unable to contact slurm controller", "pmix"),
            "--supervise.launcher threads runs all ranks in one process of this host");
}

TEST(LauncherAdvice, ALauncherThatIsNoProgramIsRefused) {
  train::SuperviseConfig supervise;
  supervise.mpirun = "no-such-mpirun --mca btl self";
  EXPECT_TRUE(check_launcher(Launcher::kThreads, supervise));
  const Status status = check_launcher(Launcher::kMpirun, supervise);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.failure().option, "supervise.mpirun");
  EXPECT_EQ(status.failure().rule, "no-such-mpirun is not in PATH");
  supervise.mpirun = " ";
  EXPECT_EQ(check_launcher(Launcher::kMpirun, supervise).failure().rule, "it is not in PATH");
}

// Variables of this test's process.
class Slurm {
 public:
  Slurm(std::initializer_list<std::pair<const char*, const char*>> variables) {
    for (const char* name : kNames) ::unsetenv(name);
    for (const auto& [name, value] : variables) ::setenv(name, value, 1);
  }
  ~Slurm() {
    for (const char* name : kNames) ::unsetenv(name);
  }

 private:
  static constexpr const char* kNames[] = {"SLURM_JOB_ID", "SLURM_JOB_NUM_NODES", "SLURM_NNODES", "SLURM_STEP_ID",
                                           "SLURM_STEP_NUM_TASKS"};
};

TEST(LauncherAdvice, WhatIsChosenInAnAllocation) {
  train::SuperviseConfig supervise;
  supervise.srun = "sh";  // some program
  {
    const Slurm none({});
    EXPECT_EQ(chosen_launcher(supervise), Launcher::kThreads);
  }
  {
    const Slurm batch({{"SLURM_JOB_ID", "7"}});
    EXPECT_EQ(chosen_launcher(supervise), Launcher::kSrun);
    supervise.launcher = Launcher::kThreads;  // named
    EXPECT_EQ(chosen_launcher(supervise), Launcher::kThreads);
    supervise.launcher = Launcher::kAuto;
  }
  {
    const Slurm shell({{"SLURM_JOB_ID", "7"}, {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}});
    EXPECT_EQ(chosen_launcher(supervise), Launcher::kThreads);
  }
  {
    const Slurm salloc({{"SLURM_JOB_ID", "7"}, {"SLURM_STEP_ID", "4294967290"}, {"SLURM_STEP_NUM_TASKS", "1"}});
    EXPECT_EQ(chosen_launcher(supervise), Launcher::kSrun);
  }
  supervise.srun = "no-such-srun";
  {
    const Slurm batch({{"SLURM_JOB_ID", "7"}});
    EXPECT_EQ(chosen_launcher(supervise), Launcher::kThreads);
  }
  const Slurm several({{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NUM_NODES", "2"}});
  EXPECT_EQ(chosen_launcher(supervise), Launcher::kSrun);  // which is refused, and not made less of
}

}  // namespace
}  // namespace trireme::cli
