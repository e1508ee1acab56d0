#pragma once

#include <string>

#include "base/env.h"

namespace trireme {

// Whether what a path names can be read once only, or by this process only: a pipe, a terminal, a descriptor of this
// process (/dev/stdin, a shell's <(...)). Of what does not exist: no.
bool is_read_once(Env& env, const std::string& path);

}  // namespace trireme
