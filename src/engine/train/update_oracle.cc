#include "engine/train/update_oracle.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace trireme::train {
namespace {

constexpr double kRoundoff = 0x1p-24;  // of fp32

// Keeps the worse of two. What is no number is the worst.
void take(UpdateMiss& worst, double difference, double bound, double scale) {
  if (!std::isfinite(difference)) difference = std::numeric_limits<double>::infinity();
  const UpdateMiss miss{difference / scale, bound / scale};
  if (miss.difference * worst.bound > worst.difference * miss.bound || worst.bound == 0) worst = miss;
}

// What layers use of master weights.
std::vector<float> rounded(DType dtype, const std::vector<float>& master) {
  std::vector<std::byte> raw(master.size() * static_cast<std::size_t>(dtype_size(dtype)));
  convert_from_f32(dtype, master, raw);
  std::vector<float> values(master.size());
  convert_to_f32(dtype, raw, values);
  return values;
}

const std::vector<float>& updated_weights(const TensorValues& tensor) {
  return tensor.master.empty() ? tensor.weight : tensor.master;
}

}  // namespace

struct UpdateOracle::Rates {
  double learning_rate = 0, correction1 = 1, correction2 = 1;
  double scale = 1;      // of gradients: the clip factor
  double roundoffs = 0;  // of an update, relative: its own operations, and what the rates' rounding adds each step
};

double UpdateOracle::norm_of(const StepValues& values) {
  double sum = 0;
  for (const auto& [name, tensor] : values.tensors) {
    for (double gradient : tensor.gradient) sum += gradient * gradient;
  }
  return std::sqrt(sum);
}

UpdateMiss UpdateOracle::updated(const model::Parameter& parameter, const Rates& rates, const TensorValues& before,
                                 const TensorValues& after) {
  const optim::OptimizerConfig& optimizer = config_.optimizer;
  const std::vector<float>&from = updated_weights(before), &to = updated_weights(after);
  Moments& moments = moments_[parameter.name];
  moments.first.resize(to.size());
  moments.second.resize(to.size());
  moments.magnitude.resize(to.size());
  const double keep = 1.0 - (parameter.decay ? rates.learning_rate * optimizer.weight_decay : 0.0);
  // Second moments below fp32's smallest normal number may be anything below it.
  const double lost = std::sqrt(static_cast<double>(std::numeric_limits<float>::min()) / rates.correction2);
  UpdateMiss worst;
  for (std::size_t i = 0; i < to.size(); ++i) {
    const double gradient = after.gradient[i] * rates.scale;
    double &first = moments.first[i], &second = moments.second[i];
    first = optimizer.beta1 * first + (1 - optimizer.beta1) * gradient;
    second = optimizer.beta2 * second + (1 - optimizer.beta2) * gradient * gradient;
    moments.magnitude[i] = static_cast<float>(optimizer.beta1 * static_cast<double>(moments.magnitude[i]) +
                                              (1 - optimizer.beta1) * std::abs(gradient));
    const double root = std::sqrt(second / rates.correction2) + optimizer.epsilon;
    const double rate = rates.learning_rate / rates.correction1 / std::max(root, 1e-300);
    const double wanted = static_cast<double>(from[i]) * keep - rate * first;
    const double magnitude = std::max(std::abs(wanted), std::abs(static_cast<double>(from[i])));
    const double bound = 8 * kRoundoff * magnitude + rate * static_cast<double>(moments.magnitude[i]) *
                                                         (rates.roundoffs * kRoundoff + lost / std::max(root, 1e-300));
    take(worst, std::abs(static_cast<double>(to[i]) - wanted), std::max(bound, 1e-300),
         std::max({magnitude, rates.learning_rate, 1e-30}));
  }
  return worst;
}

std::map<std::string, UpdateMiss> UpdateOracle::next(std::int64_t step,
                                                     const std::map<std::string, TensorValues>& before,
                                                     const StepValues& after) {
  const optim::OptimizerConfig& optimizer = config_.optimizer;
  const Rates rates{.learning_rate = optim::learning_rate_at(config_.learning_rate, step - 1),
                    .correction1 = 1 - std::pow(optimizer.beta1, static_cast<double>(step)),
                    .correction2 = 1 - std::pow(optimizer.beta2, static_cast<double>(step)),
                    .scale = after.left_out ? 0 : optim::clip_factor(optimizer, norm_of(after)),
                    .roundoffs = 32 + 4 * static_cast<double>(step)};
  constexpr UpdateMiss kOtherBits{.difference = 1, .bound = 0};
  std::map<std::string, UpdateMiss> misses;
  for (const model::Parameter& parameter : table_.parameters) {
    const TensorValues &was = before.at(parameter.name), &is = after.tensors.at(parameter.name);
    UpdateMiss& miss = misses[parameter.name];
    if (updated_weights(was).size() != updated_weights(is).size() || is.gradient.size() != is.weight.size()) {
      miss = kOtherBits;  // a part that no rank holds
    } else if (after.left_out) {
      if (updated_weights(was) != updated_weights(is)) miss = kOtherBits;
    } else {
      miss = updated(parameter, rates, was, is);
    }
    if (!is.master.empty() && rounded(config_.precision, is.master) != is.weight) miss = kOtherBits;
  }
  return misses;
}

}  // namespace trireme::train
