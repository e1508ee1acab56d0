#include "engine/nn/unit_harness.h"

#include <cmath>

namespace trireme::nn {

using model::Role;

UnitHarness::UnitHarness(const model::Config& config_in, int unit_in, std::int64_t sequences, std::int64_t sequence,
                         comm::Communicator& tensor, bool sequence_parallel, model::Recompute recompute)
    : config(config_in),
      table(model::make_parameter_table(config_in)),
      batch{.global_batch = sequences, .micro_batch = sequences, .sequence = sequence},
      unit(unit_in),
      tp_index(tensor.index()),
      rank_{.env = env_,
            .log = log_,
            .device = *device_,
            .arena = arena_,
            .tensor = tensor,
            .pipeline = *self_,
            .data = *self_,
            .kv_replicas = *self_,
            .seed = 11} {
  layout.tp = tensor.size();
  layout.sequence_parallel = sequence_parallel;
  layout.recompute = recompute;
  const plan::RunInputs run{.threads = 1, .compute = DType::kF64};
  program = plan::make_unit_program(config, model::unit_flow(config, unit), layout, batch, run);
  const std::int64_t workspace = plan::workspace_of(program).count;
  workspace_memory_.resize(static_cast<std::size_t>(workspace / 8 + 8));
  workspace_ = Workspace(reinterpret_cast<std::byte*>(workspace_memory_.data()), Bytes{workspace});

  const model::LocalWidths widths = plan::local_widths(config, layout, batch);
  for (const model::SavedActivation& entry : program.saved) {
    const model::ActivationShape shape = model::local_shape(entry.value, widths);
    std::vector<double>& values = saved_values[entry.value.name];
    values.resize(static_cast<std::size_t>(shape.rows * shape.columns));
    saved.push_back(view(values, shape.rows, shape.columns));
  }
  for (int s = 0; s < static_cast<int>(sequences); ++s) samples.push_back(static_cast<std::uint64_t>(100 + s));
  for (std::int64_t t = 0; t < sequences * sequence; ++t) {
    inputs.push_back(static_cast<std::int32_t>((t * 7 + 3) % config.vocabulary));
    targets.push_back(static_cast<std::int32_t>((t * 5 + 1) % config.vocabulary));
  }
  if (config.position == model::PositionKind::kRotary) {
    const std::vector<double> frequencies = model::rotary_inverse_frequencies(config);
    for (std::int64_t p = 0; p < sequence; ++p) {
      for (double f : frequencies) rotary.push_back(std::cos(static_cast<double>(p) * f));
      for (double f : frequencies) rotary.push_back(std::sin(static_cast<double>(p) * f));
    }
  }
  const plan::Interval vocabulary = {config.vocabulary * tp_index / layout.tp,
                                     config.vocabulary * (tp_index + 1) / layout.tp};
  const std::int64_t rows = plan::logit_rows(batch);
  logits_.resize(static_cast<std::size_t>(rows * vocabulary.length()));
  row_terms_.resize(static_cast<std::size_t>(3 * rows));
  losses_.resize(inputs.size());
  loss = {.logits = view(logits_, rows, vocabulary.length()),
          .row_terms = view(row_terms_, 3, rows),
          .losses = view(losses_, 1, static_cast<std::int64_t>(losses_.size()))};
}

void UnitHarness::run(model::FlowPass pass, kernels::TensorView out, GradientSink* sink, double loss_scale) {
  run_pass(context(), program, pass, weights,
           {.saved = saved, .output = out, .input_gradient = out, .loss = loss, .loss_scale = loss_scale}, sink);
}

kernels::TensorView UnitHarness::view(std::vector<double>& values, std::int64_t rows, std::int64_t columns) {
  return kernels::make_view(reinterpret_cast<std::byte*>(values.data()), DType::kF64, rows, columns);
}

void UnitHarness::set_weights(const std::function<double(const model::Parameter&, std::int64_t, std::int64_t)>& value) {
  for (int role = 0; role < model::kRoleCount; ++role) {
    const int index = table.find(unit, static_cast<Role>(role));
    if (index < 0) continue;
    const model::Parameter& parameter = table.parameters[static_cast<std::size_t>(index)];
    const bool matrix = parameter.shape.size() > 1;
    const plan::TensorCut cut = plan::cut_of(parameter, plan::tensor_intervals(parameter, layout.tp, tp_index));
    std::vector<double>& values = weight_values[static_cast<Role>(role)];
    values.clear();
    plan::for_each_element(
        cut, [&](std::int64_t row, std::int64_t column) { values.push_back(value(parameter, row, column)); });
    std::int64_t local_rows = 0;
    for (const plan::Interval& rows : cut.rows) local_rows += rows.length();
    const auto count = static_cast<std::int64_t>(values.size());
    parameters[static_cast<Role>(role)] = index;
    weights[static_cast<Role>(role)] = matrix ? view(values, local_rows, count / local_rows) : view(values, 1, count);
  }
}

UnitContext UnitHarness::context() {
  const model::LocalWidths widths = plan::local_widths(config, layout, batch);
  return {.rank = rank_,
          .config = config,
          .widths = widths,
          .unit = unit,
          .dtype = DType::kF64,
          .sequences = batch.micro_batch,
          .sequence = batch.sequence,
          .samples = samples,
          .training = training,
          .workspace = workspace_,
          .inputs = inputs,
          .targets = targets,
          .rotary = rotary.empty() ? kernels::ConstTensorView{} : view(rotary, batch.sequence, config.head_dim),
          .head_begin = widths.heads * tp_index,
          .vocabulary_begin = config.vocabulary * tp_index / layout.tp};
}

}  // namespace trireme::nn
