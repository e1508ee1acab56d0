#include "engine/comm/mpi_launch.h"

#include <algorithm>
#include <charconv>

namespace trireme::comm {
namespace {

// Zero if absent or no number.
int number_of(const Variable& variable, const std::string& name) {
  const std::string text = variable(name).value_or("");
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && number > 0 ? number : 0;
}

// Slurm's list of tasks by node, "4(x2),3": the largest is what this host must be ready for.
int most_tasks_of_a_node(const std::string& list) {
  int most = 0;
  for (std::size_t begin = 0; begin < list.size();) {
    int tasks = 0;
    std::from_chars(list.data() + begin, list.data() + list.size(), tasks);
    most = std::max(most, tasks);
    begin = std::min(list.find(',', begin), list.size() - 1) + 1;
  }
  return most;
}

Launch launch(const char* launcher, int ranks, int ranks_here, int rank) {
  return {launcher, ranks, ranks_here > 0 && ranks_here <= ranks ? ranks_here : ranks, rank};
}

}  // namespace

Launch launch_of(const Variable& variable) {
  // Inside a Slurm job mpirun starts its daemons with srun: its own variables come first.
  if (const int ranks = number_of(variable, "OMPI_COMM_WORLD_SIZE")) {
    return launch("mpirun", ranks, number_of(variable, "OMPI_COMM_WORLD_LOCAL_SIZE"),
                  number_of(variable, "OMPI_COMM_WORLD_RANK"));
  }
  if (variable("SLURM_STEP_ID") && variable("SLURM_PROCID")) {
    if (const int ranks = number_of(variable, "SLURM_STEP_NUM_TASKS")) {
      return launch("srun", ranks, most_tasks_of_a_node(variable("SLURM_STEP_TASKS_PER_NODE").value_or("")),
                    number_of(variable, "SLURM_PROCID"));
    }
  }
  if (const int ranks = number_of(variable, "PMI_SIZE")) {
    return launch("mpiexec", ranks, number_of(variable, "MPI_LOCALNRANKS"), number_of(variable, "PMI_RANK"));
  }
  return {"none", 1, 1, 0};
}

}  // namespace trireme::comm
