#pragma once

// This process itself: its environment and its image.

namespace trireme {

bool variable_is_set(const char* name);
// Where the variable is not set: sets it and starts this program again in place, with the same arguments. Returns where
// it is set already, or where that is not possible.
void restart_with_variable(const char* name, const char* value, char** argv);

}  // namespace trireme
