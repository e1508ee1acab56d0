#pragma once

// Does a layout compute the same thing? Law 2, asked for a run: the same steps on a reference layout and on the target,
// every logical tensor compared (docs/algorithms/verify.md).

#include <optional>
#include <string>
#include <vector>

#include "engine/train/layout_curve.h"

namespace trireme::train {

enum class Verdict { kEqual, kWithinBound, kDifferent };
std::string_view verdict_name(Verdict verdict);

struct VerifyOptions {
  plan::Layout reference;  // 1 x 1 x 1 unless asked
  int steps = 2;
  RankHooks target_hooks = {};  // tests
};

// One compared value of one step.
struct Finding {
  int step = 1;
  // "initial weights", "loss", "gradient": against the reference's, from the target's own weights before the step.
  // "gradient norm", "weights": of the target against what its own gradients make of them, in float64.
  std::string what;
  std::string tensor;  // Hugging Face name; "" for scalars
  std::string unit;    // "layer 3"
  // ||difference||2 over ||gradient||2; scalars: relative; weights: of the element furthest from its bound, over the
  // larger of itself and the learning rate.
  double difference = 0;
  double bound = 0;        // 0: it must be the same bits
  bool equal_bits = true;  // with what it is compared with
  bool within() const { return difference <= bound; }
  double ratio() const;  // of the difference to the bound
};

struct VerifyReport {
  Verdict verdict = Verdict::kEqual;
  bool bits_promised = false;     // law 2 promises the bits between these layouts
  std::string axis;               // the axis that alone makes the difference; "" where none or not found
  std::optional<Finding> first;   // the first that is worse than promised, in order of steps and of the model
  std::vector<Finding> worst;     // by difference over bound, largest first; one a tensor's gradient
  std::vector<Finding> findings;  // all, in order, of the steps up to the one with the first; none where bits are equal
  std::vector<StepValues> reference;  // without tensors; from step 2 on it begins with the target's weights
  std::vector<StepValues> target;
};

// `run`: the target. The runs that give the bounds are made only where bits differ. Errors: as training; two
// ranks of the target that hold different bits of one slice: kCorrupted.
VerifyReport verify(Env& env, Log& log, const ResolvedRun& run, const VerifyOptions& options);

}  // namespace trireme::train
