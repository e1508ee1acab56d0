#include "planner/fit.h"

#include <algorithm>

#include "base/check.h"
#include "planner/evaluator.h"

namespace trireme::planner {
namespace {

double efficiency(double at_the_peak, double measured) {
  return measured > 0 ? std::clamp(at_the_peak / measured, 0.01, 1.0) : 1.0;
}

}  // namespace

DeviceConstants fit_device(Problem problem, const Choice& layout, const MeasuredStep& measured) {
  TRIREME_CHECK_EQ(layout.world(), 1);
  problem.device = {.gemm_efficiency = 1,
                    .gemm_half_extent = 0,
                    .attention_efficiency = 1,
                    .memory_efficiency = 1,
                    .kernel_launch = {},
                    .inside_efficiency = 1,
                    .between_efficiency = 1};
  DeviceConstants fitted = problem.device;
  const TimeParts peak = Evaluator(std::move(problem)).estimate(layout).parts;
  fitted.gemm_efficiency = efficiency(peak.gemm, measured.products_s);
  fitted.attention_efficiency = efficiency(peak.attention, measured.attention_s);
  fitted.memory_efficiency = efficiency(peak.memory + peak.optimizer, measured.other_s);
  return fitted;
}

}  // namespace trireme::planner
