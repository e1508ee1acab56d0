#include "engine/train/trainer.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "engine/train/peak.h"
#include "engine/train/progress.h"
#include "engine/train/rank_threads.h"
#include "engine/train/rank_trainer.h"
#include "engine/train/run_checks.h"
#include "engine/train/weights.h"
#include "model/flops.h"

namespace trireme::train {
namespace {

// What this engine runs today over several ranks: everything but ZeRO and sums over ranks for each micro-batch. These
// are refused by name before anything is allocated.
Status check_engine(const plan::Layout& layout) {
  const auto refuse = [](const char* option, std::string value, const char* rule, const char* nearest) {
    return Failure{.option = option, .value = std::move(value), .rule = rule, .nearest = nearest};
  };
  if (layout.world() == 1) return ok_status();
  if (layout.zero != 0) {
    return refuse("layout.zero", fmt::format("{}", layout.zero), "this build's engine shards no state over ranks", "0");
  }
  if (layout.reduce != plan::ReduceWhen::kStep) {
    return refuse("layout.reduce", std::string(plan::reduce_name(layout.reduce)),
                  "this build's engine sums ranks once a step", "step");
  }
  return ok_status();
}

class Run {
 public:
  Run(Env& env, Log& log, const ResolvedRun& run, const TrainHooks& hooks)
      : env_(env),
        log_(log),
        run_(run),
        hooks_(hooks),
        tokens_(open_training(env, run)),
        world_(run.config.layout.world(), Seconds{run.config.deadline_s}),
        gate_(Seconds{run.config.deadline_s}),
        progress_(hooks.terminal, run.config.steps, run.config.log_interval, hooks.put) {
    if (!run.config.validation_tokens.empty()) validation_ = open_validation(env, run);
    ranks_.resize(static_cast<std::size_t>(ranks()));
  }

  TrainOutcome train() {
    measure();
    run_rank_threads(ranks(), world_, [&](int rank) {
      try {
        rank == 0 ? lead() : follow(rank);
      } catch (...) {
        gate_.give_up();
        throw;
      }
    });
    return outcome_;
  }

 private:
  int ranks() const { return run_.config.layout.world(); }

  void measure() {
    const int threads = run_.plan.inputs.threads;
    const int all = std::min(env_.core_count(), threads * ranks());
    const std::unique_ptr<kernels::Device> device = kernels::make_cpu_device(std::max(1, all));
    outcome_.gemm_flops_per_s = measure_gemm_rate(env_, *device);
    log_.info("{} rank{} x {} compute thread{}, measured GEMM rate {}", ranks(), ranks() == 1 ? "" : "s", threads,
              threads == 1 ? "" : "s", format_flops_rate(outcome_.gemm_flops_per_s));
  }

  RankTrainer& make_rank(int rank) {
    std::unique_ptr<RankTrainer>& trainer = ranks_[static_cast<std::size_t>(rank)];
    trainer =
        std::make_unique<RankTrainer>(env_, log_, run_, rank, kernels::make_cpu_device(run_.plan.inputs.threads),
                                      ranks() == 1 ? nullptr : &world_, tokens_, validation_ ? &*validation_ : nullptr);
    return *trainer;
  }

  // Rank 0: steps, metrics, the decision to go on, the model at the end.
  void lead() {
    RankTrainer& rank = make_rank(0);
    if (!run_.config.model_weights.empty()) log_.info("weights from {}", run_.config.model_weights);
    const std::unique_ptr<FileLock> lock = open_directory(env_, run_.config);
    telemetry::MetricsWriter metrics(env_, join_path(run_.config.out, "metrics.jsonl"));
    for (std::int64_t step = 1; step <= run_.config.steps; ++step) {
      gate_.announce(step);
      const telemetry::StepRecord record = one_step(rank, step);
      metrics.write(record);
      progress_.step(record);
      outcome_.last = record;
      outcome_.steps_done = step;
      if (stop_asked()) {
        outcome_.interrupted = step < run_.config.steps;
        break;
      }
    }
    progress_.finish();
    metrics.close();
    gate_.await_others(ranks() - 1);
    finish(rank);
    gate_.end();
  }

  // The others. They stay until the leader has taken their weights.
  void follow(int number) {
    RankTrainer& rank = make_rank(number);
    for (std::int64_t step = 1; gate_.await(step); ++step) {
      rank.step(step);
      if (!validation_due(step)) continue;
      for (std::int64_t i = 0; i < run_.config.validation_micro_batches; ++i) rank.validate(i);
    }
    ranks_[static_cast<std::size_t>(number)].reset();
  }

  telemetry::StepRecord one_step(RankTrainer& rank, std::int64_t step) {
    const double before = env_.now().count;
    const plan::Batch& batch = run_.config.batch;
    telemetry::StepRecord record{.step = step};
    record.learning_rate = optim::learning_rate_at(run_.config.learning_rate, step - 1);
    const parallel::StepResult result = rank.step(step);
    record.loss = result.loss;
    record.grad_norm = result.grad_norm;
    record.clip_factor = result.clip_factor;
    record.step_s = std::max(env_.now().count - before, 1e-9);  // a clock may stand still
    const auto step_tokens = static_cast<double>(plan::tokens_per_step(batch));
    record.tokens = step * plan::tokens_per_step(batch);
    record.tokens_per_s = step_tokens / record.step_s;
    record.mfu = model::model_flops(run_.plan.table.config, batch.global_batch, batch.sequence).count /
                 (record.step_s * outcome_.gemm_flops_per_s);
    record.resident_bytes = env_.resident_memory().anonymous.count;
    if (validation_due(step)) {
      record.validation_loss = validation_loss(rank);
      if (record.validation_loss) outcome_.validation_loss = record.validation_loss;
    }
    return record;
  }

  bool validation_due(std::int64_t step) const {
    if (!validation_) return false;
    const std::int64_t interval = run_.config.validation_interval;
    return step == run_.config.steps || (interval > 0 && step % interval == 0);
  }

  bool stop_asked() const { return hooks_.stop_requested && hooks_.stop_requested(); }

  // None where the run was asked to stop meanwhile (one rank alone: several must all do the same rounds).
  std::optional<double> validation_loss(RankTrainer& rank) {
    const std::int64_t rounds = run_.config.validation_micro_batches;
    ExactSum sum;
    std::int64_t tokens = 0;
    for (std::int64_t i = 0; i < rounds; ++i) {
      if (ranks() == 1 && stop_asked()) return std::nullopt;
      const RankTrainer::Validation round = rank.validate(i);
      sum.add(round.losses);
      tokens += round.tokens;
    }
    if (tokens == 0) {
      throw Error(ExitCode::kUsage, "train", "validation",
                  "no validation token bears a loss: every target is data.ignore",
                  "another data.ignore, more train.validation_micro_batches, or other data");
    }
    const double loss = sum.value() / static_cast<double>(tokens);
    if (!std::isfinite(loss)) {
      throw Error(ExitCode::kDiverged, "train", "validation", fmt::format("the validation loss is {}", loss),
                  "lower optimizer.learning_rate, lengthen warm-up, or clip");
    }
    return loss;
  }

  // The outcome's ledger is rank 0's; every rank's is compared.
  void finish(RankTrainer& leader) {
    outcome_.predicted = leader.rank().predicted();
    outcome_.counted = leader.rank().counted();
    outcome_.resident = env_.resident_memory().anonymous;
    outcome_.out = run_.config.out;
    std::vector<RankWeights> weights;
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      parallel::Rank& rank = ranks_[i]->rank();
      const std::string fault = Ledger::first_difference(rank.predicted(), rank.counted());
      if (!fault.empty()) log_.warning("the ledger of rank {} is not what the plan predicted: {}", i, fault);
      weights.push_back({rank.plan(), rank.device(), rank.executor().state()});
    }
    export_model(env_, weights, join_path(run_.config.out, "model"));
  }

  Env& env_;
  Log& log_;
  const ResolvedRun& run_;
  const TrainHooks& hooks_;
  data::Sampler tokens_;
  std::optional<data::Sampler> validation_;
  comm::ThreadWorld world_;
  RoundGate gate_;
  Progress progress_;
  std::vector<std::unique_ptr<RankTrainer>> ranks_;  // each made and stepped by its own thread
  TrainOutcome outcome_;
};

}  // namespace

ResolvedRun resolve_run(Env& env, const RunConfig& config, std::int64_t layers) {
  if (Status status = check_engine(config.layout); !status) throw Error(status.failure());
  ResolvedRun run{.config = config, .plan = {}};
  // Ranks are threads of this process: they share its cores.
  const int share = std::max(1, env.core_count() / std::max(1, config.layout.world()));
  run.config.threads = config.threads > 0 ? config.threads : share;
  model::Config model_config = model::load_config(env, config.model_config).or_throw();
  if (layers > 0) model_config.layers = layers;
  if (Status status = model::check_trainable(model_config); !status) throw Error(status.failure());
  if (config.ignore >= model_config.vocabulary) {
    throw Error(Failure{.option = "data.ignore",
                        .value = fmt::format("{}", config.ignore),
                        .rule = fmt::format("the model's vocabulary has {} tokens", model_config.vocabulary),
                        .nearest = fmt::format("{}", model_config.vocabulary - 1)});
  }
  run.plan = parallel::make_run_plan(
      model_config, config.layout, config.batch,
      {.threads = static_cast<int>(run.config.threads),
       .compute = DType::kF32,
       .evaluation_micro_batches = config.validation_tokens.empty() ? 0 : config.validation_micro_batches,
       .masked_targets = config.ignore >= 0},
      0);
  return run;
}

std::string describe_run(const ResolvedRun& run) {
  const plan::Batch& batch = run.config.batch;
  const std::int64_t micro_batches = plan::micro_batches(run.config.layout, batch);
  const std::int64_t parameters = run.plan.table.total();
  const double flops = model::model_flops(run.plan.table.config, batch.global_batch, batch.sequence).count;
  std::string text = fmt::format("model   {}, {} parameters\n", model::family_name(run.plan.table.config.family),
                                 format_exact(parameters));
  text += fmt::format("layout  {}, recompute {}\n", plan::describe(run.config.layout),
                      model::recompute_name(run.config.layout.recompute));
  text += fmt::format("batch   {} sequences = {} a micro-batch x {} micro-batch{} x {} replica{}\n", batch.global_batch,
                      batch.micro_batch, micro_batches, micro_batches == 1 ? "" : "es", run.config.layout.dp,
                      run.config.layout.dp == 1 ? "" : "s");
  text += fmt::format("        {} sequences x {} tokens = {} tokens and {:.3g} model flops a step\n",
                      batch.global_batch, batch.sequence, format_exact(plan::tokens_per_step(batch)), flops);
  return text;
}

void check_run(Env& env, const ResolvedRun& run) {
  open_training(env, run);
  if (!run.config.validation_tokens.empty()) open_validation(env, run);
  if (!run.config.model_weights.empty() && !env.exists(run.config.model_weights)) {
    throw Error(Failure{.option = "model.weights",
                        .value = run.config.model_weights,
                        .rule = "there is no such file or directory",
                        .nearest = ""});
  }
  check_directory(env, run.config);
  check_memory(env, run);
}

TrainOutcome train(Env& env, Log& log, const ResolvedRun& run, const TrainHooks& hooks) {
  check_run(env, run);
  return Run(env, log, run, hooks).train();
}

}  // namespace trireme::train
