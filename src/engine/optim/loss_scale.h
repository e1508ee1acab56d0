#pragma once

// Dynamic loss scaling for gradients in F16, whose smallest numbers are 2^-24: the loss is multiplied by a power of
// two, so that its gradients are, and the update divides by it, both exactly. Where a gradient overflows the step is
// left out and the scale halved; after many steps without that it is doubled (Micikevicius et al., "Mixed precision
// training", 2018). Every rank sees the same global norm, so all agree.

#include <cstdint>

#include "base/error.h"

namespace trireme::optim {

struct LossScalePolicy {
  double initial = 65536;           // a power of two
  std::int64_t growth_steps = 500;  // without an overflow, before it is doubled
  friend bool operator==(const LossScalePolicy&, const LossScalePolicy&) = default;
};
inline constexpr double kMostLossScale = 0x1p24;

struct LossScale {
  double scale = 1;
  std::int64_t good_steps = 0;  // since it last changed
  friend bool operator==(const LossScale&, const LossScale&) = default;
};

Status check(const LossScalePolicy& policy);
// For the step after one whose gradients overflowed, or did not. Not below 1: who overflows there has diverged.
LossScale next_loss_scale(const LossScalePolicy& policy, const LossScale& last, bool overflowed);

}  // namespace trireme::optim
