#pragma once

#include "base/env.h"
#include "base/units.h"

namespace trireme {

// What the limits of this process's control groups leave (version 2 and 1; its own and those around it), as the
// kernel's files say through `env`. Pages of files that were read can be given back: they do not count as taken.
Bytes left_by_control_groups(Env& env);
// What the process's own limits leave of its address space and data (ulimit -v, -d).
Bytes left_by_process_limits(Env& env);
// What each thread takes of that before it runs.
Bytes thread_stack();

}  // namespace trireme
