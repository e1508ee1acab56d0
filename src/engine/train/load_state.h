#pragma once

// Training state out of a checkpoint into a rank, whatever layout wrote it: each rank reads the slices that hold
// something of its own, one at a time, through its checkpoint staging; nothing else is held.

#include <cstdint>

#include "checkpoint/reader.h"
#include "engine/parallel/rank_state.h"

namespace trireme::train {

struct LoadedBytes {
  Bytes read;    // of slices, each as often as it was read
  Bytes needed;  // what this rank keeps of them
};
// Every element of weights and moments that the rank holds. Error(kStorage): a slice that is not what was written, or
// larger than the staging.
LoadedBytes load_state(const checkpoint::Reader& checkpoint, kernels::Device& device, const parallel::RunPlan& plan,
                       parallel::RankState& state);

}  // namespace trireme::train
