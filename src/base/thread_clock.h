#pragma once

#include "base/units.h"

namespace trireme {

// What the calling thread has computed so far: time in which another had its core does not count.
Seconds thread_cpu_time();

}  // namespace trireme
