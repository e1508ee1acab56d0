#include <cmath>
#include <numbers>

#include "base/check.h"
#include "model/config.h"

namespace trireme::model {
namespace {

// Wavelengths beyond the original context are stretched by `factor`, short ones kept, those between blended.
double llama3_frequency(double frequency, const RopeScaling& scaling) {
  const double positions = static_cast<double>(scaling.original_positions);
  const double wavelength = 2.0 * std::numbers::pi / frequency;
  if (wavelength < positions / scaling.high_frequency_factor) return frequency;
  if (wavelength > positions / scaling.low_frequency_factor) return frequency / scaling.factor;
  const double blend = (positions / wavelength - scaling.low_frequency_factor) /
                       (scaling.high_frequency_factor - scaling.low_frequency_factor);
  return (1.0 - blend) * frequency / scaling.factor + blend * frequency;
}

}  // namespace

std::vector<double> rotary_inverse_frequencies(const Config& config) {
  TRIREME_CHECK(config.position == PositionKind::kRotary, "{} has no rotary embedding", family_name(config.family));
  TRIREME_CHECK_EQ(config.head_dim % 2, 0);
  std::vector<double> frequencies;
  for (std::int64_t dimension = 0; dimension < config.head_dim; dimension += 2) {
    const double exponent = static_cast<double>(dimension) / static_cast<double>(config.head_dim);
    double frequency = 1.0 / std::pow(config.rope_theta, exponent);
    if (config.rope_scaling.kind == RopeScalingKind::kLinear) frequency /= config.rope_scaling.factor;
    if (config.rope_scaling.kind == RopeScalingKind::kLlama3) {
      frequency = llama3_frequency(frequency, config.rope_scaling);
    }
    frequencies.push_back(static_cast<double>(static_cast<float>(frequency)));
  }
  return frequencies;
}

}  // namespace trireme::model
