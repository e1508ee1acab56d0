#pragma once

// Where a rank has which part of the training state.

#include "engine/parallel/rank_state.h"

namespace trireme::train {

// Elements [begin, end) of a shard unit's flat buffer, of that state: inside what the rank keeps of it.
inline kernels::TensorView state_view(parallel::RankState& state, plan::StateKind kind, int shard_unit,
                                      plan::Interval part) {
  switch (kind) {
    case plan::StateKind::kWeight:
      return state.weights(shard_unit, part);
    case plan::StateKind::kFirstMoment:
      return state.first_moments(shard_unit, part);
    case plan::StateKind::kSecondMoment:
      return state.second_moments(shard_unit, part);
  }
  TRIREME_CHECK(false, "state kind {}", static_cast<int>(kind));
}

}  // namespace trireme::train
