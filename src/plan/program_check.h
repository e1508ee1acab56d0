#pragma once

// Proves a rank's program: what it allocates it frees, nothing is used before or after it exists, gathers and gradient
// buffers are balanced, every unit goes forward once and backward once for each micro-batch (and is recomputed where
// something was dropped), every gradient is reduced as often as `reduce` says, and every shard unit is updated once.

#include <string>

#include "plan/program.h"

namespace trireme::plan {

// "" if the program is right, else the first fault. Linear in the instructions.
std::string check_program(const model::ParameterTable& table, const Layout& layout, const Batch& batch,
                          const RankProgram& program);

}  // namespace trireme::plan
