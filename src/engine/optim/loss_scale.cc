#include "engine/optim/loss_scale.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace trireme::optim {

Status check(const LossScalePolicy& policy) {
  int exponent = 0;
  const bool power = std::frexp(policy.initial, &exponent) == 0.5;
  if (power && policy.initial >= 1 && policy.initial <= kMostLossScale) return ok_status();
  const double nearest = std::exp2(std::round(std::log2(std::clamp(policy.initial, 1.0, kMostLossScale))));
  return Failure{.option = "optimizer.loss_scale",
                 .value = fmt::format("{}", policy.initial),
                 .rule = fmt::format("must be a power of two from 1 to {}", kMostLossScale),
                 .nearest = fmt::format("{}", nearest)};
}

LossScale next_loss_scale(const LossScalePolicy& policy, const LossScale& last, bool overflowed) {
  if (overflowed) return {.scale = std::max(1.0, last.scale / 2), .good_steps = 0};
  if (last.good_steps + 1 < policy.growth_steps) return {.scale = last.scale, .good_steps = last.good_steps + 1};
  return {.scale = std::min(kMostLossScale, last.scale * 2), .good_steps = 0};
}

}  // namespace trireme::optim
