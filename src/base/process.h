#pragma once

// This process itself: its environment and its image.

#include <string>

namespace trireme {

bool runs_as_root();

bool variable_is_set(const char* name);
// Where the variable is not set: sets it and starts this program again in place, with the same arguments. Returns where
// it is set already, or where that is not possible.
void restart_with_variable(const char* name, const char* value, char** argv);

// Asks the parent process to end (SIGTERM) where it runs a program of this name.
void end_parent_called(const std::string& name);

}  // namespace trireme
