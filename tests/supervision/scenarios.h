#pragma once

// Which world a seed makes.

#include "supervision/simulated_world.h"

namespace trireme::supervisor {

Scenario make_scenario(std::uint64_t seed);

}  // namespace trireme::supervisor
