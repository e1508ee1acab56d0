#pragma once

// This process itself.

#include <string>

namespace trireme {

bool runs_as_root();

// What ps and top call this process, 15 bytes at most: a start through /proc has left it the name of a link there.
void name_this_process(const char* name);

bool variable_is_set(const char* name);

// Asks the parent process to end (SIGTERM) where it runs a program of this name.
void end_parent_called(const std::string& name);

}  // namespace trireme
