#pragma once

// The flows of a model's units and what follows from them alone, made once for all layouts that are compared.

#include <map>
#include <utility>
#include <vector>

#include "model/activations.h"
#include "plan/unit_program.h"
#include "planner/problem.h"

namespace trireme::planner {

class ModelUnits {
 public:
  struct Unit {
    model::UnitFlow flow;
    std::int64_t count = 0;  // of such units in the model
    std::vector<model::SavedActivation> saved;
  };

  explicit ModelUnits(const model::Config& config);
  const Unit& embedding() const { return units_[0]; }
  const Unit& head() const { return units_[1]; }
  // Decoder layers, one of each kind, from the first on.
  std::span<const Unit> layers() const { return std::span(units_).subspan(2); }
  // The largest workspace of layers and head.
  Bytes workspace(const Problem& problem, const plan::Layout& layout, const plan::Batch& batch);

 private:
  std::vector<Unit> units_;                                                 // by model::flow_class
  std::map<std::pair<bool, bool>, std::vector<plan::UnitProgram>> shared_;  // tp above one; sequence parallelism
};

}  // namespace trireme::planner
