#pragma once

// The program as its users run it: through a shell, with standard output, standard error and exit code apart.

#include <string>

namespace trireme::testing {

struct ProgramRun {
  int code = -1;
  std::string out;
  std::string error;
};

// Runs the program named by TRIREME_PROGRAM. `arguments` as one would type them.
ProgramRun run_trireme(const std::string& arguments);

}  // namespace trireme::testing
