#include "engine/train/rank_trainer.h"

#include <algorithm>
#include <chrono>

#include "base/thread_clock.h"
#include "engine/train/placement.h"
#include "engine/train/run_trace.h"
#include "engine/train/weights.h"

namespace trireme::train {
namespace {

Seconds now() { return comm::on_the_clock(comm::Clock::now()); }

// A span of the whole step, around all of its instructions, and one of what comes before the first.
class StepSpans {
 public:
  explicit StepSpans(telemetry::Timeline* timeline)
      : timeline_(timeline != nullptr && timeline->on() ? timeline : nullptr) {
    if (timeline_ != nullptr) begin_ = now();
  }
  ~StepSpans() {
    add("step");
    if (timeline_ != nullptr) timeline_->switch_to(false);
  }
  StepSpans(const StepSpans&) = delete;
  StepSpans& operator=(const StepSpans&) = delete;
  void loaded() const { add("load tokens"); }

 private:
  void add(std::string_view name) const {
    if (timeline_ == nullptr) return;
    timeline_->add({.name = timeline_->word(name), .place = timeline_->place(), .begin = begin_, .end = now()});
  }

  telemetry::Timeline* timeline_;
  Seconds begin_;
};

}  // namespace

RankTrainer::RankTrainer(Env& env, Log& log, const ResolvedRun& run, int rank, std::unique_ptr<kernels::Device> device,
                         const comm::CommunicatorFactory& factory, const data::Sampler& tokens,
                         const data::Sampler* validation, const RankHooks& hooks, std::vector<int> host_of)
    : env_(env),
      run_(run),
      tokens_(tokens),
      validation_(validation),
      dp_index_(plan::coordinates_of(run.config.layout, rank).dp) {
  parallel::RunPlan plan = rank == 0 ? run.plan
                                     : parallel::make_run_plan(run.plan.table.config, run.config.layout,
                                                               run.config.batch, run.plan.inputs, rank);
  const std::int64_t ranks_here = host_of.empty()
                                      ? run.config.layout.world()
                                      : std::ssize(ranks_of_machine(host_of, rank, run.config.supervise.rehearsal));
  shares_cores_ = ranks_here * plan.inputs.threads > env.core_count();
  plan.inputs.host_of = std::move(host_of);
  if (hooks.plan) hooks.plan(plan);
  if (hooks.sample) {
    sample_hook_ = [hook = hooks.sample, rank](std::int64_t sample) { return hook(rank, sample); };
  }
  comm::CommunicatorFactory made = factory;
  if (hooks.communicator) {
    made = [&](const comm::GroupName& name, const comm::GroupOptions& group_options) {
      return hooks.communicator(rank, factory(name, group_options));
    };
  }
  const parallel::RankOptions options{
      .seed = run.config.seed,
      .memory_limit = run.config.memory_limit.count > 0 ? std::optional(run.config.memory_limit) : std::nullopt,
      .timeline_spans = run.config.trace.empty() ? 0 : kTimelineSpans};
  rank_ = std::make_unique<parallel::Rank>(env, log, std::move(device), std::move(plan), options, made);
  loss_scale_.scale = run.config.loss_scale.initial;
  if (hooks.executor) hooks.executor(rank, rank_->executor());
  inputs_.resize(static_cast<std::size_t>(run.config.batch.micro_batch * run.config.batch.sequence));
  targets_.resize(inputs_.size());
}

void RankTrainer::initialise() {
  if (run_.config.model_weights.empty()) {
    initialise_weights(rank_->device(), rank_->plan(), run_.config.seed, rank_->executor().state());
  } else {
    import_weights(env_, rank_->device(), rank_->plan(), run_.config.model_weights, rank_->executor().state(),
                   run_.stored_layers);
  }
}

void RankTrainer::go_on_from(const checkpoint::Progress& progress) {
  start_ = progress;
  if (progress.loss_scale > 0) loss_scale_ = {.scale = progress.loss_scale, .good_steps = progress.good_steps};
}

parallel::StepResult RankTrainer::step(std::int64_t step) {
  const Seconds begun = now(), begun_cpu = thread_cpu_time();
  const StepSpans spans(rank_->communication().timeline.get());
  const plan::Batch& batch = run_.config.batch;
  for (std::int64_t m = 0; m < plan::micro_batches(run_.config.layout, batch); ++m) {
    const std::int64_t first =
        start_.samples + parallel::first_sample(run_.config.layout, batch, step - start_.step, dp_index_, m);
    const std::int64_t taken = sample_hook_ ? sample_hook_(first) : first;
    if (m == 0) last_first_sample_ = taken;
    fill(tokens_, taken);
    std::vector<std::uint64_t> samples;
    for (std::int64_t s = 0; s < batch.micro_batch; ++s) samples.push_back(static_cast<std::uint64_t>(first + s));
    rank_->executor().load_micro_batch(static_cast<int>(m), inputs_, targets_, samples);
  }
  spans.loaded();
  parallel::CommunicationRecords& communication = rank_->communication();
  communication.traffic.reset();
  communication.times.take();
  communication.times.take_busy_waiting();
  const parallel::StepResult result =
      rank_->executor().step({.step = step,
                              .learning_rate = optim::learning_rate_at(run_.config.learning_rate, step - 1),
                              .optimizer = run_.config.optimizer,
                              .loss_scale = scales_loss() ? std::optional(loss_scale_.scale) : std::nullopt});
  if (scales_loss()) loss_scale_ = optim::next_loss_scale(run_.config.loss_scale, loss_scale_, result.left_out);
  last_traffic_ = communication.traffic.counts();
  last_times_ = communication.times.take();
  last_step_times_.all = last_step_times_.own = {now().count - begun.count};
  for (const auto& [axis, times] : last_times_) last_step_times_.own.count -= times.exposed.count;
  const Seconds computed{thread_cpu_time().count - begun_cpu.count - communication.times.take_busy_waiting().count};
  if (shares_cores_) last_step_times_.own = computed;
  last_step_times_.own.count = std::max(0.0, last_step_times_.own.count);
  return result;
}

RankTrainer::Validation RankTrainer::validate(std::int64_t round) {
  fill(*validation_, round * run_.config.batch.micro_batch);
  return {.losses = rank_->executor().evaluate(inputs_, targets_), .tokens = nn::counted_targets(targets_)};
}

void RankTrainer::fill(const data::Sampler& tokens, std::int64_t first_sample) {
  tokens.fill_batch(first_sample, run_.config.batch.micro_batch, inputs_, targets_);
  if (run_.config.ignore < 0) return;
  std::ranges::replace(targets_, static_cast<std::int32_t>(run_.config.ignore), kernels::kIgnoredTarget);
}

}  // namespace trireme::train
