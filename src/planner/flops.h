#pragma once

// Operations that a framework's training step executes, by the conventions of the published tables.

#include <cstdint>

#include "base/units.h"
#include "model/activations.h"
#include "model/config.h"

namespace trireme::planner {

// model::hardware_flops, and what selective recomputation repeats where attention's scores are in memory (unfused), as
// Korthikanti et al. 2022, appendix A, count it: the core's part of the model's flops twice, so that GPT has
// 72 B L s h^2 (1 + s/3h + V/12hL). To run the core's forward again is a third of what that adds; the published tables
// use their formula.
double hardware_flops(const model::Config& config, std::int64_t sequences, std::int64_t sequence,
                      model::Recompute recompute, bool fused_attention);

}  // namespace trireme::planner
