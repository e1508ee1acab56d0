#include "engine/optim/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

namespace trireme::optim {
namespace {

struct DecayName {
  Decay decay;
  std::string_view name;
};
constexpr DecayName kDecayNames[] = {
    {Decay::kConstant, "constant"}, {Decay::kCosine, "cosine"}, {Decay::kLinear, "linear"}, {Decay::kWsd, "wsd"}};

// Where `step` lies between `first` (0) and the last step (1).
double progress(std::int64_t step, std::int64_t first, std::int64_t total) {
  const double span = static_cast<double>(std::max<std::int64_t>(1, total - 1 - first));
  return std::clamp(static_cast<double>(step - first) / span, 0.0, 1.0);
}

}  // namespace

Result<Decay> parse_decay(std::string_view text) {
  for (const DecayName& known : kDecayNames) {
    if (known.name == text) return known.decay;
  }
  return Failure{.option = "optimizer.decay",
                 .value = std::string(text),
                 .rule = "unknown schedule",
                 .nearest = "constant, cosine, linear, wsd"};
}

std::string_view decay_name(Decay decay) {
  for (const DecayName& known : kDecayNames) {
    if (known.decay == decay) return known.name;
  }
  return "?";
}

double learning_rate_at(const LearningRateSchedule& s, std::int64_t step) {
  if (step < s.warmup_steps) {
    return s.peak * static_cast<double>(step + 1) / static_cast<double>(s.warmup_steps);
  }
  const double range = s.peak - s.minimum;
  switch (s.decay) {
    case Decay::kConstant:
      return s.peak;
    case Decay::kCosine:
      return s.minimum +
             0.5 * range * (1.0 + std::cos(std::numbers::pi * progress(step, s.warmup_steps, s.total_steps)));
    case Decay::kLinear:
      return s.minimum + range * (1.0 - progress(step, s.warmup_steps, s.total_steps));
    case Decay::kWsd: {
      const std::int64_t first = s.total_steps - 1 - s.decay_steps;
      if (step <= first || s.decay_steps == 0) return s.peak;
      return s.minimum + range * (1.0 - progress(step, first, s.total_steps));
    }
  }
  return s.peak;
}

}  // namespace trireme::optim
