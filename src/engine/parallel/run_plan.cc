#include "engine/parallel/run_plan.h"

#include "base/check.h"
#include "plan/program_check.h"
#include "plan/tensor_flow.h"

namespace trireme::parallel {

RunPlan make_run_plan(const model::Config& config, const plan::Layout& layout, const plan::Batch& batch,
                      const plan::RunInputs& inputs, int rank) {
  if (const Status status = plan::check_layout(config, layout, batch); !status) throw Error(status.failure());
  RunPlan run{.table = model::make_parameter_table(config),
              .layout = layout,
              .batch = batch,
              .inputs = inputs,
              .rank = rank,
              .step = {},
              .evaluation = {},
              .units = plan::make_unit_programs(config, layout, batch, inputs)};
  if (const Status status = plan::check_tensor_flow(run.table, layout); !status) throw Error(status.failure());
  run.step = plan::make_program(run.table, layout, batch, rank);
  run.evaluation = plan::make_evaluation_program(run.table, layout, batch, rank);
  for (const plan::RankProgram* program : {&run.step, &run.evaluation}) {
    const std::string fault = plan::check_program(run.table, layout, batch, *program);
    TRIREME_CHECK(fault.empty(), "program of rank {}: {}", rank, fault);
  }
  return run;
}

std::int64_t first_sample(const plan::Layout& layout, const plan::Batch& batch, std::int64_t step, int dp_index,
                          std::int64_t micro_batch) {
  return (step - 1) * batch.global_batch + batch.global_batch / layout.dp * dp_index + micro_batch * batch.micro_batch;
}

Ledger predicted_ledger(const RunPlan& run) {
  return plan::predict_memory(run.table, run.layout, run.batch, run.inputs, run.rank);
}

}  // namespace trireme::parallel
