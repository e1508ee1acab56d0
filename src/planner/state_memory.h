#pragma once

// Training state by ZeRO stage from a number of parameters alone (Rajbhandari et al. 2020, section 5): per parameter in
// bf16 2 bytes of weights, 2 of gradients (4 where they are fp32), 12 of master weights and two moments; in fp32 4, 4
// and 8. Stage 1 shards the optimizer's part over N ranks, 2 also the gradients, 3 also the weights.

#include <cstdint>
#include <optional>

#include "plan/memory.h"

namespace trireme::planner {

struct StateBytes {
  double weights = 0;
  double gradients = 0;
  double optimizer = 0;  // master weights and moments
  double sum() const { return weights + gradients + optimizer; }
};
// Of one rank; `inputs` gives the element types.
StateBytes state_bytes(double parameters, std::int64_t ranks, int zero, const plan::RunInputs& inputs);

// The fewest ranks with which the state of a ZeRO stage is at most `memory` bytes; none if no number of ranks suffices.
std::optional<std::int64_t> fewest_ranks(double parameters, double memory, int zero, const plan::RunInputs& inputs);

}  // namespace trireme::planner
