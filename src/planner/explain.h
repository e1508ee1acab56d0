#pragma once

// Why a layout is what it is: what binds, what would change it, why another was not chosen, which axis solves what.

#include <optional>
#include <string>
#include <vector>

#include "planner/search.h"

namespace trireme::planner {

// One step away from a layout, the world kept.
struct Change {
  std::string what;  // "tp 8 -> 4"
  Choice choice;
  Screened screened;
  double shortage = 0;  // bytes beyond the memory; <= 0 where it fits
};
// All legal neighbours, fastest first.
std::vector<Change> neighbours(Evaluator& evaluator, const Choice& choice, double memory, bool allow_slow_tp);

// Parts of a step with their names, largest first, those of no time left out.
std::vector<std::pair<std::string, double>> named_parts(const TimeParts& parts);
// "products take 71 % of the step; then exchange on the tensor axis, 15 %. Memory: 3.1 GB of 80.0 GB are free."
std::string what_binds(const Estimate& estimate, double memory);

// Whether a layout is legal on this cluster: the world, the host rule for tensor parallelism, plan::check_layout.
Status check_choice(const Problem& problem, const Choice& choice, bool allow_slow_tp);

struct WhyNot {
  std::optional<Failure> illegal;     // the rule that is broken
  std::optional<NearMiss> too_large;  // the smallest of its kind if none fits: by how much
  std::optional<Estimate> best;       // the best of its kind that fits, or the too large one
};
WhyNot why_not(const Problem& problem, const SearchOptions& options, const Wanted& wanted, Env& clock);

// Which axis a model asks for on devices of this memory: data (it fits and is slow), tensor (one layer does not fit),
// ZeRO (the state does not fit, each layer does), pipeline (too deep).
struct AxisAdvice {
  std::string axis;  // "data", "tensor", "pipeline", "zero"
  std::string sentence;
  double one_device = 0;  // bytes of the whole model on one device, micro-batch 1, full recompute
  double one_layer = 0;   // of one layer with its state and activations
};
AxisAdvice axis_advice(const Problem& problem, double memory);

}  // namespace trireme::planner
