#include "engine/comm/mpi_launch.h"

#include <map>

#include <gtest/gtest.h>

namespace trireme::comm {
namespace {

Launch launch_with(const std::map<std::string, std::string>& variables) {
  return launch_of([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

TEST(Launch, NamesTheLauncher) {
  const auto expect = [](const Launch& launch, const std::string& launcher, int ranks) {
    EXPECT_EQ(launch.launcher, launcher);
    EXPECT_EQ(launch.ranks, ranks);
  };
  expect(launch_with({}), "none", 1);
  expect(launch_with({{"OMPI_COMM_WORLD_SIZE", "4"}}), "mpirun", 4);
  expect(launch_with({{"PMI_SIZE", "3"}}), "mpiexec", 3);
  expect(launch_with({{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "8"}}), "srun", 8);
  // A batch script is no rank; mpirun inside of a job is mpirun.
  expect(launch_with({{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "8"}}), "none", 1);
  expect(launch_with({{"OMPI_COMM_WORLD_SIZE", "4"},
                      {"SLURM_STEP_ID", "0"},
                      {"SLURM_PROCID", "0"},
                      {"SLURM_STEP_NUM_TASKS", "2"}}),
         "mpirun", 4);
  for (const std::string value : {"", "many", "-1", "0", "4x"}) {
    expect(launch_with({{"OMPI_COMM_WORLD_SIZE", value}}), "none", 1);
  }
}

TEST(Launch, SaysWhichRankThisIs) {
  EXPECT_EQ(launch_with({{"OMPI_COMM_WORLD_SIZE", "8"}, {"OMPI_COMM_WORLD_RANK", "7"}}).rank, 7);
  EXPECT_EQ(launch_with({{"PMI_SIZE", "8"}, {"PMI_RANK", "3"}}).rank, 3);
  EXPECT_EQ(launch_with({{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "5"}, {"SLURM_STEP_NUM_TASKS", "8"}}).rank, 5);
  EXPECT_EQ(launch_with({}).rank, 0);
}

TEST(Launch, SaysHowManyRanksShareThisHost) {
  EXPECT_EQ(launch_with({{"OMPI_COMM_WORLD_SIZE", "8"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}).ranks_here, 2);
  EXPECT_EQ(launch_with({{"PMI_SIZE", "8"}, {"MPI_LOCALNRANKS", "4"}}).ranks_here, 4);
  EXPECT_EQ(launch_with({{"PMI_SIZE", "8"}}).ranks_here, 8);
  for (const auto& [list, most] : {std::pair("4(x2),3", 4), {"1,3,2(x5)", 3}, {"2", 2}, {"", 8}, {",", 8}}) {
    EXPECT_EQ(launch_with({{"SLURM_STEP_ID", "0"},
                           {"SLURM_PROCID", "1"},
                           {"SLURM_STEP_NUM_TASKS", "8"},
                           {"SLURM_STEP_TASKS_PER_NODE", list}})
                  .ranks_here,
              most)
        << list;
  }
}

}  // namespace
}  // namespace trireme::comm
