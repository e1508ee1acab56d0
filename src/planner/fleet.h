#pragma once

// What a fleet's failures do to a run. Failures are independent and exponential, so rates add.

#include <cstdint>

#include "plan/checkpoint_interval.h"

namespace trireme::planner {

// device_mtbf / devices, of a job that needs all of them.
Seconds job_mtbf(Seconds device_mtbf, std::int64_t devices);

struct Fleet {
  std::int64_t devices = 0;
  Seconds device_mtbf;
  Seconds duration;  // of the run's compute, without waste
};
struct FleetForecast {
  Seconds job_mtbf;
  double failures = 0;    // expected in `duration`
  double no_failure = 0;  // probability that none happens in `duration`
  Seconds interval;       // exact optimum for `cost`
  double goodput = 0;     // at that interval
  Seconds wall;           // duration / goodput
};
// cost: of one save, blocking; restart: from a failure to the first new step.
FleetForecast forecast(const Fleet& fleet, Seconds cost, Seconds restart);

}  // namespace trireme::planner
