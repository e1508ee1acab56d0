#pragma once

// Where a rank has which part of the training state.

#include <span>

#include "engine/parallel/rank_state.h"

namespace trireme::train {

// Elements [begin, end) of a shard unit's flat buffer, of that state: inside what the rank updates, or, in a run
// without master weights, the weights that it keeps.
kernels::TensorView state_view(parallel::RankState& state, plan::StateKind kind, int shard_unit, plan::Interval part);

// Host floats into them; weights into those that the rank keeps, rounded, and into the master weights of what it
// updates.
void store_state(kernels::Device& device, parallel::RankState& state, plan::StateKind kind, int shard_unit,
                 plan::Interval part, std::span<const float> values);

// Host floats to a one-row tensor of any floating-point type, rounded, and back, widened.
void store(kernels::Device& device, kernels::TensorView to, std::span<const float> values);
std::vector<float> load(kernels::Device& device, kernels::ConstTensorView from);

}  // namespace trireme::train
