#pragma once

// Learning-rate schedules: pure functions of the step.

#include <cstdint>
#include <string_view>

#include "base/error.h"

namespace trireme::optim {

// kWsd: warm-up, stable, then a linear decay over the last decay_steps (Hu et al. 2024, MiniCPM, section 4).
enum class Decay { kConstant, kCosine, kLinear, kWsd };
Result<Decay> parse_decay(std::string_view text);  // "constant", "cosine", "linear", "wsd"
std::string_view decay_name(Decay decay);

struct LearningRateSchedule {
  double peak = 3e-4;
  double minimum = 0.0;
  std::int64_t warmup_steps = 0;
  std::int64_t total_steps = 1;
  std::int64_t decay_steps = 0;  // kWsd
  Decay decay = Decay::kCosine;
};

// step counts from 0. Warm-up: peak * (step + 1) / warmup_steps. After it, from peak to minimum at the last step.
double learning_rate_at(const LearningRateSchedule& schedule, std::int64_t step);

}  // namespace trireme::optim
