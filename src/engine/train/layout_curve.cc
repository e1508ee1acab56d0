#include "engine/train/layout_curve.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "engine/train/rank_trainer.h"
#include "engine/train/run_checks.h"
#include "engine/train/run_world.h"

namespace trireme::train {
namespace {

bool same_bits(double a, double b) { return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b); }

std::vector<double> unscaled(std::vector<double> gradients, double loss_scale) {
  for (double& gradient : gradients) gradient /= loss_scale;
  return gradients;
}

}  // namespace

void LayoutRecorder::conflict(const Place& at, const std::string& operation, const std::string& text) {
  conflicts_.try_emplace(at, Error(ExitCode::kCorrupted, "verify", operation, text));
}

// Puts a rank's part where it belongs in the whole tensor.
template <class T>
void LayoutRecorder::place(const Place& at, const model::Parameter& parameter, const plan::LocalTensor& local,
                           std::int64_t begin, const std::vector<double>& values, std::vector<T>& whole) {
  if (whole.empty()) whole.assign(static_cast<std::size_t>(parameter.elements()), std::numeric_limits<T>::quiet_NaN());
  const char* what = std::get<What>(at) == What::kGradient ? "gradient" : "weight";
  std::int64_t next = -begin;
  plan::for_each_element(plan::cut_of(parameter, local.intervals), [&](std::int64_t row, std::int64_t column) {
    const std::int64_t from = next++;
    if (from < 0 || from >= std::ssize(values)) return;
    T& element = whole[static_cast<std::size_t>(row * parameter.columns() + column)];
    const T value = static_cast<T>(values[static_cast<std::size_t>(from)]);
    if (!std::isnan(element) && !same_bits(element, value)) {
      conflict(at, parameter.name,
               fmt::format("two ranks hold different {}s of element ({}, {}): {} and {}", what, row, column,
                           std::min(element, value), std::max(element, value)));
    }
    element = value;
  });
}

void LayoutRecorder::record_weights(std::size_t step, parallel::Rank& from,
                                    std::map<std::string, TensorValues>& tensors) {
  parallel::RankState& state = from.executor().state();
  for (int unit = 0; unit < state.shard_unit_count(); ++unit) {
    const plan::ShardUnit& shard = state.shard_unit(unit);
    if (!shard.holds_weights) continue;
    for (int t = 0; t < static_cast<int>(shard.tensors.size()); ++t) {
      const plan::LocalTensor& local = shard.tensors[static_cast<std::size_t>(t)];
      const model::Parameter& parameter = from.plan().table.parameters[static_cast<std::size_t>(local.parameter)];
      const plan::Interval place_of = state.place_of({unit, t});
      const auto part = [&](What what, const plan::Interval& held, auto view, std::vector<float>& whole) {
        const plan::Interval there = plan::common(held, place_of);
        place({step, what, local.parameter}, parameter, local, there.begin - place_of.begin,
              kernels::to_host(from.device(), view(there)), whole);
      };
      TensorValues& tensor = tensors[parameter.name];
      part(
          What::kWeight, state.kept(unit), [&](auto there) { return state.weights(unit, there); }, tensor.weight);
      if (!state.has_master_weights() || shard.tied_head) continue;
      part(
          What::kMaster, state.owned(unit), [&](auto there) { return state.updated_weights(unit, there); },
          tensor.master);
    }
  }
}

void LayoutRecorder::record_gradients(std::size_t step, parallel::Rank& from, StepValues& values) {
  parallel::RankState& state = from.executor().state();
  for (int unit = 0; unit < state.shard_unit_count(); ++unit) {
    const plan::ShardUnit& shard = state.shard_unit(unit);
    if (shard.tied_head) continue;  // its gradient is in the embedding's
    for (int t = 0; t < static_cast<int>(shard.tensors.size()); ++t) {
      const plan::LocalTensor& local = shard.tensors[static_cast<std::size_t>(t)];
      const model::Parameter& parameter = from.plan().table.parameters[static_cast<std::size_t>(local.parameter)];
      const plan::Interval place_of = state.place_of({unit, t}), owned = plan::common(state.owned(unit), place_of);
      place({step, What::kGradient, local.parameter}, parameter, local, owned.begin - place_of.begin,
            unscaled(kernels::to_host(from.device(), state.gradients(unit, owned)), values.loss_scale),
            values.tensors[parameter.name].gradient);
    }
  }
}

void LayoutRecorder::record_start(parallel::Rank& from) {
  const std::lock_guard lock(mutex_);
  record_weights(0, from, curve_.start);
}

void LayoutRecorder::record(parallel::Rank& from, const parallel::StepResult& result, bool weights) {
  const std::lock_guard lock(mutex_);
  const std::size_t step = ++done_[from.plan().rank];
  if (curve_.steps.size() < step) {
    curve_.steps.push_back({.loss = result.loss,
                            .grad_norm = result.grad_norm,
                            .loss_scale = result.loss_scale,
                            .left_out = result.left_out});
  }
  StepValues& values = curve_.steps[step - 1];
  record_gradients(step, from, values);
  if (weights) record_weights(step, from, values.tensors);
  if (same_bits(result.loss, values.loss) && same_bits(result.grad_norm, values.grad_norm)) return;
  conflict({step, What::kScalar, 0}, fmt::format("step {}", step), "two ranks have different losses or norms");
}

LayoutCurve LayoutRecorder::whole() {
  const std::lock_guard lock(mutex_);
  if (!conflicts_.empty()) throw conflicts_.begin()->second;
  return std::move(curve_);
}

LayoutCurve run_layout(Env& env, Log& log, const ResolvedRun& run, const CurveOptions& options,
                       const RankHooks& hooks) {
  const data::Sampler tokens = open_training(env, run);
  const std::unique_ptr<RunWorld> world =
      make_thread_run_world(run.config.layout.world(), Seconds{run.config.deadline_s});
  LayoutRecorder recorder;
  run_ranks(*world, [&](int rank) {
    std::unique_ptr<kernels::Device> device = options.device ? options.device()
                                              : run.plan.inputs.compute == DType::kF64
                                                  ? kernels::make_reference_device()
                                                  : kernels::make_cpu_device(run.plan.inputs.threads);
    RankTrainer trainer(env, log, run, rank, std::move(device), world->factory(rank), tokens, nullptr, hooks);
    parallel::Rank& own = trainer.rank();
    if (options.weights) {
      fill_weights(own.device(), own.plan(), options.weights, own.executor().state());
    } else {
      trainer.initialise();
    }
    if (!options.gradients_only) recorder.record_start(own);
    for (std::int64_t step = options.first; step < options.first + options.steps; ++step) {
      const parallel::StepResult result = trainer.step(step);
      recorder.record(own, result, !options.gradients_only);
    }
  });
  return recorder.whole();
}

}  // namespace trireme::train
