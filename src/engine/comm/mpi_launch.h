#pragma once

// Who started this process as one of several ranks, by the variables that launchers set.

#include <functional>
#include <optional>
#include <string>

namespace trireme::comm {

struct Launch {
  std::string launcher = "none";  // "mpirun", "srun", "mpiexec"; "none": this process is alone
  int ranks = 1;                  // that it says it has started
  int ranks_here = 1;             // of them on this host, as far as it says; else all
  int rank = 0;                   // of this process
};

// The value of an environment variable, if it is set.
using Variable = std::function<std::optional<std::string>(const std::string& name)>;

Launch launch_of(const Variable& variable);

}  // namespace trireme::comm
