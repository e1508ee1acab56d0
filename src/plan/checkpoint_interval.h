#pragma once

// How often to save. cost: seconds that one save blocks the run; mtbf: mean time between failures of the whole job;
// restart: seconds from a failure to the first new step. An interval is the compute time between two saves. All
// functions need positive finite cost and mtbf, and restart >= 0 (CHECK; the command line refuses first).

#include <vector>

#include "base/units.h"

namespace trireme::plan {

struct FailureModel {
  Seconds cost;
  Seconds mtbf;
  Seconds restart;
};

// First order: cost / interval + interval / (2 mtbf) [+ restart / mtbf]. `checkpoint` and `lost` are its first two
// terms.
struct Waste {
  Seconds interval;
  double checkpoint_fraction = 0;
  double lost_fraction = 0;
  double waste_fraction = 0;  // checkpoint + lost: the part that the interval decides
};
Waste waste_at(const FailureModel& model, Seconds interval);

Seconds young_interval(const FailureModel& model);  // sqrt(2 cost mtbf) (Young 1974)
// sqrt(2 cost mtbf) [1 + sqrt(cost / 2 mtbf) / 3 + (cost / 2 mtbf) / 9] - cost where cost < 2 mtbf, else mtbf
// (Daly 2006).
Seconds daly_interval(const FailureModel& model);
// The exact optimum under exponential failures: mtbf (1 + W0(-exp(-1 - cost / mtbf))), W0 the Lambert function.
Seconds exact_interval(const FailureModel& model);
// Principal branch for x in [-1/e, 0]; the result w solves w exp(w) = x within 1e-12 of 1.
double lambert_w0(double x);
// The multiple of `step` of least first-order waste.
Seconds swept_interval(const FailureModel& model, Seconds step);

// Daly's complete model: T_wall / T_solve = (mtbf / interval) exp(restart / mtbf) (exp((interval + cost) / mtbf) - 1).
double goodput(const FailureModel& model, Seconds interval);  // T_solve / T_wall, in (0, 1)

// Points of the U-curve: `count` intervals, evenly spaced in the logarithm from `from` to `to`.
std::vector<Waste> waste_curve(const FailureModel& model, Seconds from, Seconds to, int count);

}  // namespace trireme::plan
