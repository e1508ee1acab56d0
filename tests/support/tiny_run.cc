#include "support/tiny_run.h"

#include "base/units.h"
#include "engine/kernels/device.h"
#include "engine/train/weights.h"
#include "model/test_configs.h"
#include "support/tiny_tokens.h"

namespace trireme::testing {
namespace {

std::unique_ptr<kernels::Device> make_device(const TinyRun& run) {
  switch (run.device) {
    case DeviceKind::kReference:
      return kernels::make_reference_device();
    case DeviceKind::kFake:
      return kernels::make_fake_device();
    case DeviceKind::kCpu:
      break;
  }
  return kernels::make_cpu_device(run.threads);
}

}  // namespace

model::Config tiny_gpt2(double dropout) {
  model::Config c = model::small_gpt2();
  c.layers = 3;
  c.embedding_dropout = c.attention_dropout = c.residual_dropout = dropout;
  return c;
}

model::Config tiny_llama(bool tied) {
  model::Config c = model::small_llama();
  c.layers = 3;
  c.hidden = 24;  // not heads * head_dim
  c.head_dim = 8;
  c.ffn = 40;
  c.tied_embeddings = tied;
  return c;
}

TinyRank::TinyRank(const TinyRun& run) : run_(run) {
  parallel::RunPlan plan = parallel::make_run_plan(run.config, run.layout, run.batch,
                                                   {.threads = run.threads,
                                                    .compute = run.compute,
                                                    .fp32_gradients = run.fp32_gradients,
                                                    .evaluation_micro_batches = 1,
                                                    .masked_targets = static_cast<bool>(run.ignored)},
                                                   0);
  rank_ = std::make_unique<parallel::Rank>(env_, log_, make_device(run), std::move(plan),
                                           parallel::RankOptions{.seed = run.seed, .poison = run.poison});
  train::initialise_weights(rank_->device(), rank_->plan(), run.seed, rank_->executor().state());
}

parallel::StepResult TinyRank::step() {
  const std::int64_t micro_batches = plan::micro_batches(run_.layout, run_.batch);
  for (std::int64_t m = 0; m < micro_batches; ++m) {
    const TinyBatch batch = tiny_batch(run_, parallel::first_sample(run_.layout, run_.batch, steps_ + 1, 0, m));
    rank_->executor().load_micro_batch(static_cast<int>(m), batch.inputs, batch.targets, batch.samples);
  }
  ++steps_;
  return rank_->executor().step({.step = steps_,
                                 .learning_rate = run_.learning_rate,
                                 .optimizer = {.weight_decay = run_.weight_decay, .clip_norm = run_.clip_norm},
                                 .loss_scale = run_.loss_scale});
}

double TinyRank::evaluation_loss() {
  const TinyBatch batch = tiny_batch(run_, 1000);
  return rank_->executor().evaluate(batch.inputs, batch.targets).value() / static_cast<double>(batch.inputs.size());
}

std::vector<float> TinyRank::weights() {
  std::vector<float> all;
  parallel::RankState& state = rank_->executor().state();
  for (int unit = 0; unit < state.shard_unit_count(); ++unit) {
    if (!state.shard_unit(unit).holds_weights) continue;
    for (int t = 0; t < static_cast<int>(state.shard_unit(unit).tensors.size()); ++t) {
      const std::vector<double> values = kernels::to_host(rank_->device(), state.weight({unit, t}));
      all.insert(all.end(), values.begin(), values.end());
    }
  }
  return all;
}

Curve train_curve(const TinyRun& run, int steps) {
  TinyRank rank(run);
  Curve curve;
  for (int i = 0; i < steps; ++i) {
    const parallel::StepResult result = rank.step();
    curve.lines.push_back(format_hex(result.loss) + " " + format_hex(result.grad_norm));
  }
  curve.weights = rank.weights();
  return curve;
}

}  // namespace trireme::testing
