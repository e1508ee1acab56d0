#include "planner/fleet.h"

#include <cmath>

#include "base/check.h"

namespace trireme::planner {

Seconds job_mtbf(Seconds device_mtbf, std::int64_t devices) {
  TRIREME_CHECK_GT(devices, 0);
  return {device_mtbf.count / static_cast<double>(devices)};
}

FleetForecast forecast(const Fleet& fleet, Seconds cost, Seconds restart) {
  TRIREME_CHECK(fleet.duration.count > 0, "duration {} s", fleet.duration.count);
  FleetForecast result;
  result.job_mtbf = job_mtbf(fleet.device_mtbf, fleet.devices);
  result.failures = fleet.duration.count / result.job_mtbf.count;
  result.no_failure = std::exp(-result.failures);
  const plan::FailureModel model{.cost = cost, .mtbf = result.job_mtbf, .restart = restart};
  result.interval = plan::exact_interval(model);
  result.goodput = plan::goodput(model, result.interval);
  result.wall = {fleet.duration.count / result.goodput};
  return result;
}

}  // namespace trireme::planner
