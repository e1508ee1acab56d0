#include "engine/comm/mpi_launch.h"

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

}  // namespace

Launch launch_of(const Variable& variable) {
  // Inside a Slurm job mpirun starts its daemons with srun: its own variables come first.
  if (const int ranks = number_of(variable, "OMPI_COMM_WORLD_SIZE")) return {"mpirun", ranks};
  if (variable("SLURM_STEP_ID") && variable("SLURM_PROCID")) {
    if (const int ranks = number_of(variable, "SLURM_STEP_NUM_TASKS")) return {"srun", ranks};
  }
  if (const int ranks = number_of(variable, "PMI_SIZE")) return {"mpiexec", ranks};
  return {"none", 1};
}

}  // namespace trireme::comm
