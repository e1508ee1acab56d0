#pragma once

// Everything that a rank was told to do, as values: what the planner may have chosen and the executor runs.

#include "base/ledger.h"
#include "model/parameters.h"
#include "plan/layout.h"
#include "plan/memory.h"
#include "plan/program.h"
#include "plan/unit_program.h"

namespace trireme::parallel {

struct RunPlan {
  model::ParameterTable table;
  plan::Layout layout;
  plan::Batch batch;
  plan::RunInputs inputs;
  int rank = 0;
  plan::RankProgram step;
  plan::RankProgram evaluation;
  std::vector<plan::UnitProgram> units;  // by model::flow_class

  const plan::UnitProgram& unit(int index) const {
    return units[static_cast<std::size_t>(model::flow_class(table.config, index))];
  }
};

// Checks the layout (Error with the refusal), makes and checks the programs.
RunPlan make_run_plan(const model::Config& config, const plan::Layout& layout, const plan::Batch& batch,
                      const plan::RunInputs& inputs, int rank);

// Number of the first sample of a micro-batch: a step's samples in order are cut into dp runs, each into micro-batches.
// Steps count from 1.
std::int64_t first_sample(const plan::Layout& layout, const plan::Batch& batch, std::int64_t step, int dp_index,
                          std::int64_t micro_batch);

// What the arena may hold: the plan's own prediction.
Ledger predicted_ledger(const RunPlan& plan);

}  // namespace trireme::parallel
