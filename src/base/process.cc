#include "base/process.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "base/env.h"

namespace trireme {

bool runs_as_root() { return ::geteuid() == 0; }

void name_this_process(const char* name) { ::prctl(PR_SET_NAME, name); }

bool variable_is_set(const char* name) { return std::getenv(name) != nullptr; }

void end_parent_called(const std::string& name) {
  const pid_t parent = ::getppid();
  const std::string file = "/proc/" + std::to_string(parent) + "/comm";
  Env& env = posix_env();
  if (env.exists(file) && env.read_file(file) == name + "\n") ::kill(parent, SIGTERM);
}

}  // namespace trireme
