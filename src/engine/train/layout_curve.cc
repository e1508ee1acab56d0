#include "engine/train/layout_curve.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "engine/train/rank_trainer.h"
#include "engine/train/run_checks.h"
#include "engine/train/run_world.h"

namespace trireme::train {
namespace {

bool same_bits(double a, double b) { return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b); }

std::vector<double> unscaled(std::vector<double> gradients, const parallel::StepResult& result) {
  for (double& gradient : gradients) gradient /= result.loss_scale;
  return gradients;
}

}  // namespace

LayoutRecorder::LayoutRecorder(int ranks) : by_rank_(static_cast<std::size_t>(ranks)) {}

// Puts a rank's part where it belongs in the whole tensor.
void LayoutRecorder::place(std::vector<double>& whole, const model::Parameter& parameter,
                           const plan::LocalTensor& local, const Part& part, const char* what) {
  if (whole.empty()) whole.assign(static_cast<std::size_t>(parameter.elements()), std::nan("unset"));
  std::int64_t next = -part.begin;
  plan::for_each_element(plan::cut_of(parameter, local.intervals), [&](std::int64_t row, std::int64_t column) {
    const std::int64_t at = next++;
    if (at < 0 || at >= std::ssize(part.values)) return;
    double& element = whole[static_cast<std::size_t>(row * parameter.columns() + column)];
    const double value = part.values[static_cast<std::size_t>(at)];
    if (!std::isnan(element) && !same_bits(element, value)) {
      throw Error(ExitCode::kCorrupted, "verify", parameter.name,
                  fmt::format("two ranks hold different {}s of element ({}, {}): {} and {}", what, row, column, element,
                              value));
    }
    element = value;
  });
}

void LayoutRecorder::record(int rank, parallel::Rank& from, const parallel::StepResult& result) {
  RankStep step{.result = result, .slices = {}};
  parallel::RankState& state = from.executor().state();
  for (int unit = 0; unit < state.shard_unit_count(); ++unit) {
    const plan::ShardUnit& shard = state.shard_unit(unit);
    if (shard.tied_head) continue;  // its gradient is in the embedding's, its weights are a copy
    for (int t = 0; t < static_cast<int>(shard.tensors.size()); ++t) {
      const plan::LocalTensor& local = shard.tensors[static_cast<std::size_t>(t)];
      const plan::Interval place = state.place_of({unit, t});
      const plan::Interval owned = plan::common(state.owned(unit), place), kept = plan::common(state.kept(unit), place);
      step.slices.push_back(
          {local,
           {owned.begin - place.begin, unscaled(kernels::to_host(from.device(), state.gradients(unit, owned)), result)},
           {kept.begin - place.begin, kernels::to_host(from.device(), state.weights(unit, kept))}});
    }
  }
  by_rank_[static_cast<std::size_t>(rank)].push_back(std::move(step));
}

std::vector<StepValues> LayoutRecorder::whole(const model::ParameterTable& table) const {
  std::vector<StepValues> all(by_rank_.front().size());
  for (std::size_t s = 0; s < all.size(); ++s) {
    all[s].loss = by_rank_.front()[s].result.loss;
    all[s].grad_norm = by_rank_.front()[s].result.grad_norm;
    for (const std::vector<RankStep>& rank : by_rank_) {
      for (const Slice& slice : rank[s].slices) {
        const model::Parameter& parameter = table.parameters[static_cast<std::size_t>(slice.local.parameter)];
        TensorValues& tensor = all[s].tensors[parameter.name];
        place(tensor.gradient, parameter, slice.local, slice.gradient, "gradient");
        place(tensor.weight, parameter, slice.local, slice.weight, "weight");
      }
    }
    for (const std::vector<RankStep>& rank : by_rank_) {
      if (!same_bits(rank[s].result.loss, all[s].loss) || !same_bits(rank[s].result.grad_norm, all[s].grad_norm)) {
        throw Error(ExitCode::kCorrupted, "verify", fmt::format("step {}", s + 1),
                    "two ranks have different losses or norms");
      }
    }
  }
  return all;
}

std::vector<StepValues> run_layout(Env& env, Log& log, const ResolvedRun& run, int steps, const RankHooks& hooks) {
  const data::Sampler tokens = open_training(env, run);
  const int ranks = run.config.layout.world();
  const std::unique_ptr<RunWorld> world = make_thread_run_world(ranks, Seconds{run.config.deadline_s});
  LayoutRecorder recorder(ranks);
  run_ranks(*world, [&](int rank) {
    std::unique_ptr<kernels::Device> device = run.plan.inputs.compute == DType::kF64
                                                  ? kernels::make_reference_device()
                                                  : kernels::make_cpu_device(run.plan.inputs.threads);
    RankTrainer trainer(env, log, run, rank, std::move(device), world->factory(rank), tokens, nullptr, hooks);
    trainer.initialise();
    for (int step = 1; step <= steps; ++step) {
      const parallel::StepResult result = trainer.step(step);
      recorder.record(rank, trainer.rank(), result);
    }
  });
  return recorder.whole(run.plan.table);
}

}  // namespace trireme::train
