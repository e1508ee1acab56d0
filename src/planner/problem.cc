#include "planner/problem.h"

#include <fmt/format.h>

#include "base/check.h"
#include "plan/slices.h"

namespace trireme::planner {

double Problem::peak_flops_per_s() const {
  return is_narrow(inputs.compute) ? cluster.device.bf16_flops_per_s : cluster.device.fp32_flops_per_s;
}

Links Problem::links() const {
  Links links = links_of(cluster);
  links.inside_bytes_per_s *= device.inside_efficiency;
  links.host_bytes_per_s *= device.between_efficiency;
  return links;
}

plan::Batch Problem::batch(std::int64_t micro_batch) const {
  return {.global_batch = global_batch, .micro_batch = micro_batch, .sequence = sequence};
}

Result<Problem> make_problem(const model::Config& config, const cluster::Cluster& cluster, std::int64_t global_batch,
                             std::int64_t sequence, DType compute, const Calibration& calibration,
                             const std::string& framework) {
  const Result<FrameworkConstants> constants = calibration.framework(framework);
  if (!constants) return constants.failure();
  Problem problem{.config = config,
                  .cluster = cluster,
                  .global_batch = global_batch,
                  .sequence = sequence,
                  .inputs = {.compute = compute, .fp32_gradients = constants->fp32_gradients},
                  .framework = *constants,
                  .device = calibration.device(cluster.device.name),
                  .element = {}};
  problem.element = {.weight = static_cast<double>(dtype_size(compute)),
                     .gradient = static_cast<double>(dtype_size(plan::gradient_dtype(problem.inputs))),
                     .state = static_cast<double>(dtype_size(plan::state_dtype(problem.inputs)))};
  if (sequence < 1 || sequence > config.max_positions) {
    return Failure{.option = "sequence",
                   .value = fmt::format("{}", sequence),
                   .rule = fmt::format("the model has {} positions", config.max_positions),
                   .nearest = fmt::format("{}", sequence < 1 ? 1 : config.max_positions)};
  }
  if (global_batch < 1) {
    return Failure{.option = "batch",
                   .value = fmt::format("{}", global_batch),
                   .rule = "must be at least one sequence",
                   .nearest = "1"};
  }
  if (problem.peak_flops_per_s() <= 0) {
    return Failure{.option = "precision",
                   .value = std::string(plan::precision_name(compute)),
                   .rule = fmt::format("{} has no rate for it in the cluster file", cluster.device.name),
                   .nearest = is_narrow(compute) ? "fp32" : "bf16"};
  }
  return problem;
}

void keep_gradients_in_fp32(Problem& problem) {
  problem.inputs.fp32_gradients = true;
  problem.element.gradient = static_cast<double>(dtype_size(plan::gradient_dtype(problem.inputs)));
}

UnitElements unit_elements(const Problem& problem, int tp) {
  // One layer stands for all; a padded vocabulary is a larger one.
  model::Config config = problem.config;
  config.layers = 1;
  config.vocabulary = round_up(
      config.vocabulary, problem.framework.vocabulary_multiple * (problem.framework.vocabulary_multiple > 1 ? tp : 1));
  const model::ParameterTable table = model::make_parameter_table(config);
  plan::Layout layout;
  layout.tp = tp;
  UnitElements elements;
  for (const plan::ShardUnit& unit : plan::shard_units(table, layout, tp - 1)) {
    if (unit.tied_head) {
      elements.tied_head = unit.elements;
    } else if (unit.unit == 0) {
      elements.embedding = unit.elements;
    } else if (unit.unit == 1) {
      elements.layer = unit.elements;
    } else {
      elements.head = unit.elements;
    }
  }
  return elements;
}

std::int64_t tied_unit_elements(const UnitElements& elements, int dp) {
  return elements.tied_head == 0 || dp == 1 ? elements.tied_head : elements.embedding;
}

std::int64_t padded_elements(std::int64_t elements, int dp) {
  return elements == 0 ? 0 : round_up(elements, plan::kScalarBlock * dp);
}

}  // namespace trireme::planner
