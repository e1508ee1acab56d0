#include "base/process.h"

#include <unistd.h>

#include <cstdlib>

namespace trireme {

bool variable_is_set(const char* name) { return std::getenv(name) != nullptr; }

void restart_with_variable(const char* name, const char* value, char** argv) {
  if (variable_is_set(name) || ::setenv(name, value, 1) != 0) return;
  ::execv("/proc/self/exe", argv);
}

}  // namespace trireme
