#pragma once

#include <exception>

#include "base/exit_code.h"

namespace trireme {

// The exit code of a command that this has ended. Memory that the system does not give, for a thread too, is
// kDoesNotFit; what has no code of its own is kInternal.
ExitCode code_of(const std::exception& error);

}  // namespace trireme
