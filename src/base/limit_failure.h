#pragma once

// Exceptions that say that this process has run into a limit of the system: of memory, of threads. They carry no
// ExitCode of their own; theirs is kDoesNotFit.

#include <exception>
#include <string>

namespace trireme {

// What to say of it: "" where it says no such thing.
std::string limit_failure(const std::exception& error);

}  // namespace trireme
