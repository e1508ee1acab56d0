#include "plan/checkpoint_interval.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"

namespace trireme::plan {
namespace {

constexpr int kMaxIterations = 100;

void check_model(const FailureModel& model) {
  TRIREME_CHECK(model.cost.count > 0 && std::isfinite(model.cost.count), "cost {} s", model.cost.count);
  TRIREME_CHECK(model.mtbf.count > 0 && std::isfinite(model.mtbf.count), "mtbf {} s", model.mtbf.count);
  TRIREME_CHECK(model.restart.count >= 0 && std::isfinite(model.restart.count), "restart {} s", model.restart.count);
}

// -log(1 - u) - u, without the cancellation that small u would bring.
double excess_log(double u) {
  if (u > 0.1) return -std::log1p(-u) - u;
  double sum = 0;
  double power = u;
  for (int k = 2; k <= 18; ++k) {
    power *= u;
    sum += power / k;
  }
  return sum;
}

// 1 + W0(-exp(-1 - d)) for d in [0, 1): with u = 1 + W0 the definition reads -log(1 - u) - u = d, which stays exact
// where -exp(-1 - d) no longer tells d from 0. The left side is convex and at least u^2 / 2, so that Newton's steps
// come down from the right of the root.
double one_plus_w0(double d) {
  if (d <= 0) return 0;
  double u = std::min(std::sqrt(2 * d), 0.85);
  for (int i = 0; i < kMaxIterations; ++i) {
    const double step = (excess_log(u) - d) * (1 - u) / u;
    u -= step;
    if (std::abs(step) <= 1e-16 * u) break;
  }
  return u;
}

// w exp(w) = x for x in (-exp(-2), 0]: far from the branch point, where Newton's method is at ease.
double small_w0(double x) {
  double w = x;
  for (int i = 0; i < kMaxIterations; ++i) {
    const double step = (w - x * std::exp(-w)) / (1 + w);
    w -= step;
    if (std::abs(step) <= 1e-16 * std::abs(w)) break;
  }
  return w;
}

}  // namespace

Waste waste_at(const FailureModel& model, Seconds interval) {
  check_model(model);
  TRIREME_CHECK(interval.count > 0, "interval {} s", interval.count);
  Waste waste{.interval = interval};
  waste.checkpoint_fraction = model.cost.count / interval.count;
  waste.lost_fraction = interval.count / (2 * model.mtbf.count);
  waste.waste_fraction = waste.checkpoint_fraction + waste.lost_fraction;
  return waste;
}

Seconds young_interval(const FailureModel& model) {
  check_model(model);
  return {std::sqrt(2 * model.cost.count * model.mtbf.count)};
}

Seconds daly_interval(const FailureModel& model) {
  const double young = young_interval(model).count;
  if (model.cost.count >= 2 * model.mtbf.count) return model.mtbf;
  const double ratio = model.cost.count / (2 * model.mtbf.count);
  return {young * (1 + std::sqrt(ratio) / 3 + ratio / 9) - model.cost.count};
}

Seconds exact_interval(const FailureModel& model) {
  check_model(model);
  const double d = model.cost.count / model.mtbf.count;
  return {model.mtbf.count * (d < 1 ? one_plus_w0(d) : 1 + small_w0(-std::exp(-1 - d)))};
}

double lambert_w0(double x) {
  TRIREME_CHECK(x >= -1 / std::numbers::e && x <= 0, "lambert_w0 of {}", x);
  if (x > -std::exp(-2.0)) return small_w0(x);
  return one_plus_w0(-1 - std::log(-x)) - 1;
}

Seconds swept_interval(const FailureModel& model, Seconds step) {
  TRIREME_CHECK(step.count > 0, "step {} s", step.count);
  // The waste falls up to Young's interval and rises after it: the best multiple is one of its two neighbours.
  const double below = std::max(1.0, std::floor(young_interval(model).count / step.count));
  const Seconds low{below * step.count};
  const Seconds high{(below + 1) * step.count};
  return waste_at(model, low).waste_fraction <= waste_at(model, high).waste_fraction ? low : high;
}

double goodput(const FailureModel& model, Seconds interval) {
  check_model(model);
  TRIREME_CHECK(interval.count > 0, "interval {} s", interval.count);
  const double mtbf = model.mtbf.count;
  const double stretch = std::exp(model.restart.count / mtbf) * std::expm1((interval.count + model.cost.count) / mtbf);
  return interval.count / (mtbf * stretch);
}

std::vector<Waste> waste_curve(const FailureModel& model, Seconds from, Seconds to, int count) {
  TRIREME_CHECK(from.count > 0 && from < to, "curve from {} s to {} s", from.count, to.count);
  TRIREME_CHECK_GE(count, 2);
  std::vector<Waste> curve;
  for (int i = 0; i < count; ++i) {
    const double position = static_cast<double>(i) / (count - 1);
    curve.push_back(waste_at(model, {from.count * std::pow(to.count / from.count, position)}));
  }
  return curve;
}

}  // namespace trireme::plan
