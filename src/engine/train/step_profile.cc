#include "engine/train/step_profile.h"

#include <algorithm>

#include "engine/kernels/timed_device.h"
#include "engine/train/peak.h"
#include "engine/train/rank_trainer.h"
#include "engine/train/run_checks.h"
#include "engine/train/run_world.h"
#include "model/flops.h"

namespace trireme::train {

namespace {

// The best of what was measured so far and now: the machine may be taken at any time.
void measure_limits(Env& env, const ResolvedRun& run, StepProfile& profile) {
  const std::unique_ptr<kernels::Device> device = kernels::make_cpu_device(run.plan.inputs.threads);
  const auto raise = [](double& best, double measured) { best = std::max(best, measured); };
  raise(profile.gemm_flops_per_s, measure_gemm_rate(env, *device, run.plan.inputs.compute));
  raise(profile.copy_bytes_per_s, measure_copy_rate(env, *device));
  raise(profile.cache_bytes_per_s, measure_cache_rate(env, *device));
}

}  // namespace

StepProfile profile_steps(Env& env, Log& log, const ResolvedRun& run, int steps, int profiled) {
  TRIREME_CHECK(steps >= 1 && profiled >= 0 && profiled < run.config.layout.world());
  check_memory(env, run, all_ranks(run.config.layout));
  StepProfile profile;
  measure_limits(env, run, profile);
  const data::Sampler tokens = open_training(env, run);
  const std::unique_ptr<RunWorld> world =
      make_thread_run_world(run.config.layout.world(), Seconds{run.config.start_deadline_s});
  run_ranks(*world, [&](int rank) {
    kernels::KernelRecord record;
    std::unique_ptr<kernels::Device> device = kernels::make_cpu_device(run.plan.inputs.threads);
    if (rank == profiled) device = kernels::make_timed_device(std::move(device), env, record);
    RankTrainer trainer(env, log, run, rank, std::move(device), world->factory(rank), tokens, nullptr);
    trainer.initialise();
    trainer.step(1);
    record.take();
    double all = 0;
    double waited = 0;
    for (int step = 2; step <= steps + 1; ++step) {
      trainer.step(step);
      all += trainer.last_step_times().all.count;
      for (const auto& [axis, times] : trainer.last_times()) waited += times.exposed.count;
    }
    if (rank != profiled) return;
    profile.kernels = record.take();
    profile.step_s = all / steps;
    profile.waited_s = waited / steps;
  });
  measure_limits(env, run, profile);
  for (telemetry::KernelTimes& kernel : profile.kernels) {
    kernel.calls /= steps;
    kernel.seconds /= steps;
    kernel.flops /= steps;
    kernel.bytes /= steps;
  }
  const plan::Batch& batch = run.config.batch;
  profile.tokens = static_cast<double>(plan::tokens_per_step(batch));
  profile.model_flops = model::model_flops(run.plan.table.config, batch.global_batch, batch.sequence).count;
  return profile;
}

}  // namespace trireme::train
