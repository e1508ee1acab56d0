#pragma once

// Does a layout compute the same thing? Law 2, asked for a run: the same steps on a reference layout and on the target,
// every logical tensor compared.

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

// One compared value of one step: a tensor's gradient or weights, the loss, the norm.
struct Finding {
  int step = 1;
  std::string what;       // "gradient", "weights", "loss", "gradient norm"
  std::string tensor;     // Hugging Face name; "" for scalars
  std::string unit;       // "layer 3"
  double difference = 0;  // ||difference||2 over ||gradient||2 (weights: over ||weights||2; scalars: relative)
  double bound = 0;       // of law 2: 4 x the reference's own error against float64, with the floor
  bool equal_bits = true;
  bool within() const { return difference <= bound; }
};

struct VerifyReport {
  Verdict verdict = Verdict::kEqual;
  bool bits_promised = false;    // law 2 promises the bits between these layouts
  std::string axis;              // the axis that alone makes the difference; "" where none or not found
  std::optional<Finding> first;  // the first that is worse than promised, in order of steps and of the model
  std::vector<Finding> worst;    // by difference over bound, largest first; one a tensor
  std::vector<StepValues> reference, target;
};

// `run`: the target. The float64 run that gives the bounds is made only where bits differ. Errors: as training; two
// ranks of the target that hold different bits of one slice: kCorrupted.
VerifyReport verify(Env& env, Log& log, const ResolvedRun& run, const VerifyOptions& options);

}  // namespace trireme::train
