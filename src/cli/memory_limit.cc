#include "cli/memory_limit.h"

#include <fmt/format.h>

#include "planner/search.h"

namespace trireme::cli {
namespace {

struct Need {
  int rank = 0;
  Ledger ledger;
};

// The rank that needs most.
Need largest_need(const model::ParameterTable& table, const plan::Layout& layout, const plan::Batch& batch,
                  const plan::RunInputs& inputs) {
  Need worst;
  for (int rank = 0; rank < layout.world(); ++rank) {
    Ledger ledger = plan::predict_memory(table, layout, batch, inputs, rank);
    if (ledger.peak_sum() > worst.ledger.peak_sum()) worst = {rank, std::move(ledger)};
  }
  return worst;
}

std::string by_class(const Ledger& ledger) {
  std::string text;
  for (int i = 0; i < kMemoryClassCount; ++i) {
    const auto memory_class = static_cast<MemoryClass>(i);
    const Bytes bytes = ledger.at_peak(memory_class);
    if (bytes.count == 0) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", memory_class_name(memory_class), format_bytes(bytes));
  }
  return text;
}

// A host with one device a rank, of the limit's memory. Its rates only order the layouts that fit.
cluster::Cluster cluster_of(int ranks, Bytes limit) {
  cluster::Cluster cluster;
  cluster.name = "this run";
  cluster.device = {
      .name = "rank", .memory = limit, .bf16_flops_per_s = 1e12, .fp32_flops_per_s = 1e12, .memory_bytes_per_s = 1e11};
  cluster.devices_per_host = ranks;
  cluster.inside = cluster.between = {.bytes_per_s = 1e10, .latency = Seconds{1e-5}};
  return cluster;
}

// The fastest layouts of as many ranks that fit, each confirmed by its walk.
std::vector<std::string> fitting_layouts(Env& env, const train::ResolvedRun& run, Bytes limit) {
  constexpr std::size_t kShown = 3;
  const plan::Batch& batch = run.config.batch;
  planner::Problem problem =
      planner::make_problem(run.plan.table.config, cluster_of(run.config.layout.world(), limit), batch.global_batch,
                            batch.sequence, run.plan.inputs.compute, planner::default_calibration(), "trireme")
          .or_throw();
  if (run.plan.inputs.fp32_gradients) planner::keep_gradients_in_fp32(problem);
  problem.framework.context = Bytes{};  // the limit is of what the ledger books
  problem.framework.fragmentation = 0;
  planner::Evaluator evaluator(problem);
  // The search knows nothing of a copy of the state; ranks share it evenly.
  const Bytes copy = run.plan.inputs.checkpoints == plan::CheckpointStaging::kSnapshot
                         ? Bytes{12 * run.plan.table.total() / run.config.layout.world()}
                         : Bytes{};
  if (copy >= limit) return {};
  const planner::SearchResult found = planner::search(evaluator, {.device_memory = limit - copy, .show = 20}, env);
  std::vector<std::string> texts;
  for (const planner::Estimate& estimate : found.best) {
    const plan::Batch cut{batch.global_batch, estimate.choice.micro_batch, batch.sequence};
    const Bytes need = largest_need(run.plan.table, estimate.choice.layout(), cut, run.plan.inputs).ledger.peak_sum();
    if (need > limit) continue;
    texts.push_back(fmt::format("{} (needs {})", planner::describe(estimate.choice), format_bytes(need)));
    if (texts.size() == kShown) break;
  }
  return texts;
}

}  // namespace

Status check_memory_limit(Env& env, const train::ResolvedRun& run) {
  const Bytes limit = run.config.memory_limit;
  if (limit.count == 0) return ok_status();
  const Need need = largest_need(run.plan.table, run.config.layout, run.config.batch, run.plan.inputs);
  if (need.ledger.peak_sum() <= limit) return ok_status();
  const std::vector<std::string> fitting = fitting_layouts(env, run, limit);
  std::string advice =
      fitting.empty()
          ? fmt::format("no layout of {} ranks fits: more ranks, or a smaller model", run.config.layout.world())
          : fmt::format("these layouts of {} ranks would fit: {}", run.config.layout.world(), fmt::join(fitting, "; "));
  if (run.plan.inputs.checkpoints == plan::CheckpointStaging::kSnapshot) {
    plan::RunInputs inputs = run.plan.inputs;
    inputs.checkpoints = plan::CheckpointStaging::kTile;
    const Bytes waiting = largest_need(run.plan.table, run.config.layout, run.config.batch, inputs).ledger.peak_sum();
    if (waiting <= limit) advice += fmt::format("; or --checkpoint.async false (needs {})", format_bytes(waiting));
  }
  return Failure{.option = "train.memory_limit",
                 .value = format_bytes(limit),
                 .rule = fmt::format("does not fit: rank {} needs {} at its peak ({})", need.rank,
                                     format_bytes(need.ledger.peak_sum()), by_class(need.ledger)),
                 .nearest = advice,
                 .code = ExitCode::kDoesNotFit};
}

}  // namespace trireme::cli
