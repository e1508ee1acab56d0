#pragma once

// How far rounding alone moves the gradients of a step from those of float64: what another layout's may differ by,
// since it rounds otherwise. Measured, as one run says little of it: the errors of a mean, of a bias, of what is one
// number or a few, are often near zero by chance. So the step is done again and again from weights that are moved at
// random by as much as their type rounds, and the error of a tensor is the root mean square of all runs'
// (docs/algorithms/verify.md).

#include <map>
#include <string>

#include "engine/train/layout_curve.h"

namespace trireme::train {

// Of a tensor's gradient (norms), or of the loss.
struct RoundingError {
  double own = 0;          // root mean square over the runs
  double freedom = 1;      // how many numbers move independently in it: the errors of few vary more from run to run
  double kinks = 0;        // what inputs of relu that are a rounding away from zero contribute
  double largest() const;  // law 2's bound on what two healthy layouts differ by, without its floor
};

struct StepErrors {
  std::map<std::string, RoundingError> gradients;  // by Hugging Face name
  RoundingError loss;
};

// The runs, all on the reference's layout but for float64's, which is one rank's.
struct ErrorRuns {
  const ResolvedRun& reference;
  const ResolvedRun& exact;   // in F64
  const StepValues& unmoved;  // what the reference has from these weights
  std::int64_t step = 1;
  const std::map<std::string, TensorValues>& weights;  // before the step, as layers use them
};
StepErrors measure_errors(Env& env, Log& log, const ErrorRuns& runs);

// These weights, for a run that begins with them. They outlive it.
WeightSource weights_of(const std::map<std::string, TensorValues>& tensors);

}  // namespace trireme::train
