#include "engine/train/rounding_error.h"

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "engine/kernels/kinks.h"

namespace trireme::train {
namespace {

constexpr double kFactor = 4.0;  // law 2: of a tensor's own error
constexpr int kMovedRuns = 8;
// Two draws of an error differ by the root of two, and a layout that rounds more often than one rank has up to that
// again. exp(-kUnlikely) is how seldom a healthy one is beyond the bound, were errors normal.
constexpr double kTwoDraws = 2.0;
constexpr double kUnlikely = 20.0;

// Bits behind the leading one, and the least exponent.
struct Format {
  int bits = 23;
  int least = -126;
};
Format format_of(DType dtype) {
  if (dtype == DType::kBF16) return {7, -126};
  if (dtype == DType::kF16) return {10, -14};
  return {23, -126};
}
double unit_roundoff(DType dtype) { return std::ldexp(1.0, -format_of(dtype).bits - 1); }

// The weight, or in one of four cases a neighbour: half a unit in the last place, as a root mean square.
float moved(float weight, std::uint32_t random, const Format& format) {
  const std::uint32_t choice = random & 7;
  if (choice > 1 || weight == 0.0F || !std::isfinite(weight)) return weight;
  const float unit = std::ldexp(1.0F, std::max(std::ilogb(weight), format.least) - format.bits);
  return choice == 0 ? weight + unit : weight - unit;
}

WeightSource moved_weights(const std::map<std::string, TensorValues>& tensors, DType dtype, int run) {
  return [&tensors, format = format_of(dtype),
          run](const model::Parameter& parameter) -> std::function<float(std::int64_t)> {
    const std::vector<float>& values = tensors.at(parameter.name).weight;
    const RandomKey key{static_cast<std::uint64_t>(run), stream_of("moved weights", parameter.name)};
    return [&values, format, key](std::int64_t element) {
      return moved(values[static_cast<std::size_t>(element)], random_bits(key, static_cast<std::uint64_t>(element)),
                   format);
    };
  };
}

// The error of one run: its norm, and random sums of its elements, whose products estimate those of errors.
struct Draw {
  double squares = 0;
  std::vector<double> sums;
};
constexpr std::size_t kSums = 128;

std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

Draw draw_of(const std::vector<double>& values, const std::vector<double>& exact) {
  Draw draw{.squares = 0, .sums = std::vector<double>(kSums)};
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double error = values[i] - exact[i];
    const std::uint64_t random = mixed(i + 0x9e3779b97f4a7c15U);
    const std::size_t sum = values.size() <= kSums ? i : random % kSums;
    draw.squares += error * error;
    draw.sums[sum] += (random >> 63) != 0 ? error : -error;
  }
  return draw;
}

// Of errors with covariance C, trace(C)^2 / trace(C C) numbers are free; the expected square of the product of two
// independent errors is trace(C C).
RoundingError error_of(const std::vector<Draw>& draws) {
  double squares = 0, products = 0;
  for (const Draw& draw : draws) squares += draw.squares / static_cast<double>(draws.size());
  int pairs = 0;
  for (std::size_t a = 0; a < draws.size(); ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      double product = 0;
      for (std::size_t i = 0; i < kSums; ++i) product += draws[a].sums[i] * draws[b].sums[i];
      products += product * product;
      ++pairs;
    }
  }
  RoundingError error{.own = std::sqrt(squares)};
  if (products > 0) error.freedom = std::max(1.0, squares * squares / (products / pairs));
  return error;
}

using Draws = std::map<std::string, std::vector<Draw>>;

void add_draw(const StepValues& run, const StepValues& exact, Draws& draws) {
  for (const auto& [name, values] : run.tensors) {
    draws[name].push_back(draw_of(values.gradient, exact.tensors.at(name).gradient));
  }
  draws[""].push_back(draw_of({run.loss}, {exact.loss}));
}

// The inputs of relu nearest to zero: those that rounding may move across it.
kernels::Kinks kinks_of(const ResolvedRun& run) { return {.near = 64 * unit_roundoff(run.plan.inputs.compute)}; }

// What the gradients would be with each of the kinks taken the other way.
void add_kinks(Env& env, Log& log, const ErrorRuns& runs, const kernels::Kinks& kinks, const StepValues& exact,
               StepErrors& errors) {
  if (kinks.found.empty()) return;
  kernels::Kinks flips{.flip = true, .found = kinks.found};
  const LayoutCurve flipped = run_layout(env, log, runs.exact,
                                         {.first = runs.step,
                                          .weights = weights_of(runs.weights),
                                          .device = [&flips] { return kernels::make_kink_device(flips); },
                                          .gradients_only = true});
  for (auto& [name, error] : errors.gradients) {
    error.kinks =
        2 * std::sqrt(draw_of(flipped.steps[0].tensors.at(name).gradient, exact.tensors.at(name).gradient).squares);
  }
}

}  // namespace

double RoundingError::largest() const {
  // The chi-squared distribution's tail (Laurent and Massart, "Adaptive estimation of a quadratic functional", 2000).
  const double rare = kTwoDraws * std::sqrt(1 + 2 * std::sqrt(kUnlikely / freedom) + 2 * kUnlikely / freedom);
  return std::max(kFactor, rare) * own + kinks;
}

WeightSource weights_of(const std::map<std::string, TensorValues>& tensors) {
  return [&tensors](const model::Parameter& parameter) -> std::function<float(std::int64_t)> {
    const std::vector<float>& values = tensors.at(parameter.name).weight;
    return [&values](std::int64_t element) { return values[static_cast<std::size_t>(element)]; };
  };
}

StepErrors measure_errors(Env& env, Log& log, const ErrorRuns& runs) {
  kernels::Kinks kinks = kinks_of(runs.reference);
  const StepValues exact = std::move(run_layout(env, log, runs.exact,
                                                {.first = runs.step,
                                                 .weights = weights_of(runs.weights),
                                                 .device = [&kinks] { return kernels::make_kink_device(kinks); },
                                                 .gradients_only = true})
                                         .steps[0]);
  Draws draws;
  add_draw(runs.unmoved, exact, draws);
  for (int run = 1; run <= kMovedRuns; ++run) {
    const LayoutCurve curve =
        run_layout(env, log, runs.reference,
                   {.first = runs.step,
                    .weights = moved_weights(runs.weights, runs.reference.plan.inputs.compute, run),
                    .gradients_only = true});
    if (!curve.steps[0].left_out) add_draw(curve.steps[0], exact, draws);
  }
  StepErrors errors{.gradients = {}, .loss = error_of(draws.at(""))};
  draws.erase("");
  for (const auto& [name, of_tensor] : draws) errors.gradients[name] = error_of(of_tensor);
  add_kinks(env, log, runs, kinks, exact, errors);
  return errors;
}

}  // namespace trireme::train
