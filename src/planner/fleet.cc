#include "planner/fleet.h"

#include <cmath>

#include "base/check.h"

namespace trireme::planner {

FleetForecast forecast(const Fleet& fleet, Seconds cost, Seconds restart) {
  TRIREME_CHECK_GT(fleet.devices, 0);
  TRIREME_CHECK(fleet.duration.count > 0, "duration {} s", fleet.duration.count);
  FleetForecast result;
  result.job_mtbf = {fleet.device_mtbf.count / static_cast<double>(fleet.devices)};
  result.failures = fleet.duration.count / result.job_mtbf.count;
  result.no_failure = std::exp(-result.failures);
  const FailureModel model{.cost = cost, .mtbf = result.job_mtbf, .restart = restart};
  result.interval = exact_interval(model);
  result.goodput = goodput(model, result.interval);
  result.wall = {fleet.duration.count / result.goodput};
  return result;
}

}  // namespace trireme::planner
