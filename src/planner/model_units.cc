#include "planner/model_units.h"

#include <algorithm>

namespace trireme::planner {

ModelUnits::ModelUnits(const model::Config& config) {
  const std::vector<std::int64_t> counts = model::units_by_class(config);
  for (model::UnitFlow& flow : model::flows_by_class(config)) {
    std::vector<model::SavedActivation> saved = model::saved_activations(flow);
    units_.push_back({.flow = std::move(flow), .count = counts[units_.size()], .saved = std::move(saved)});
  }
}

Bytes ModelUnits::workspace(const Problem& problem, const plan::Layout& layout, const plan::Batch& batch) {
  std::vector<plan::UnitProgram>& programs = shared_[{layout.tp > 1, layout.sequence_parallel}];
  if (programs.empty()) {
    for (const Unit& unit : units_) {
      if (unit.flow.kind == model::UnitKind::kEmbedding) continue;
      programs.push_back(plan::make_unit_program(problem.config, unit.flow, layout, batch, problem.inputs));
    }
  }
  Bytes most;
  for (const plan::UnitProgram& unit : programs) {
    most = std::max(most, plan::workspace_of(unit, problem.config, layout, batch, problem.inputs));
  }
  return most;
}

}  // namespace trireme::planner
