#include "planner/state_memory.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace trireme::planner {

StateBytes state_bytes(double parameters, std::int64_t ranks, int zero, const plan::RunInputs& inputs) {
  TRIREME_CHECK(parameters > 0 && ranks >= 1 && zero >= 0 && zero <= 3, "{} parameters, {} ranks, ZeRO {}", parameters,
                ranks, zero);
  const auto part = [&](int from_stage) { return zero >= from_stage ? static_cast<double>(ranks) : 1.0; };
  const double state = static_cast<double>(dtype_size(plan::state_dtype(inputs)));
  const double kept = plan::has_master_weights(inputs) ? 3 * state : 2 * state;
  return {.weights = parameters * static_cast<double>(dtype_size(inputs.compute)) / part(3),
          .gradients = parameters * static_cast<double>(dtype_size(plan::gradient_dtype(inputs))) / part(2),
          .optimizer = parameters * kept / part(1)};
}

std::optional<std::int64_t> fewest_ranks(double parameters, double memory, int zero, const plan::RunInputs& inputs) {
  const auto fits = [&](std::int64_t ranks) { return state_bytes(parameters, ranks, zero, inputs).sum() <= memory; };
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  if (!fits(kMost)) return std::nullopt;
  std::int64_t low = 1, high = kMost;
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (fits(middle)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

}  // namespace trireme::planner
