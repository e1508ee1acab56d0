#include "engine/train/trainer.h"

#include <algorithm>

#include <fmt/format.h>

#include "engine/data/sampler.h"
#include "engine/data/tokenize.h"
#include "engine/parallel/local_rank.h"
#include "engine/train/peak.h"
#include "engine/train/progress.h"
#include "engine/train/weights.h"
#include "model/flops.h"

namespace trireme::train {
namespace {

// What this engine runs today: one rank. Anything else is refused by name before anything is allocated.
Status check_engine(const plan::Layout& layout) {
  struct Degree {
    const char* name;
    int value;
  };
  for (const Degree& degree : {Degree{"layout.tp", layout.tp}, {"layout.pp", layout.pp}, {"layout.dp", layout.dp}}) {
    if (degree.value != 1) {
      return Failure{.option = degree.name,
                     .value = fmt::format("{}", degree.value),
                     .rule = "this build's engine trains on one rank",
                     .nearest = "1"};
    }
  }
  return ok_status();
}

// The vocabulary whose ids a token file holds: what data.json beside it says, else the model's.
std::int64_t file_vocabulary(Env& env, const std::string& key, const std::string& path, const model::Config& config) {
  const std::string directory = directory_name(path);
  if (!env.exists(join_path(directory, data::kInfoFile))) return config.vocabulary;
  const data::DataInfo info = data::load_data_info(env, directory).or_throw();
  if (info.vocabulary > config.vocabulary) {
    throw Error(Failure{.option = key,
                        .value = path,
                        .rule = fmt::format("its tokenizer ({}) has {} tokens, the model's vocabulary {}",
                                            info.tokenizer, info.vocabulary, config.vocabulary),
                        .nearest = "a model with a vocabulary at least as large"});
  }
  return info.vocabulary;
}

data::Sampler open_tokens(Env& env, const std::string& key, const std::string& path, const ResolvedRun& run,
                          data::Order order) {
  if (!env.exists(path)) {
    throw Error(Failure{.option = key,
                        .value = path,
                        .rule = "there is no such file",
                        .nearest = "trireme data tokenize TEXT --out DIR makes one"});
  }
  return data::Sampler::open(env, {.path = path,
                                   .vocabulary = file_vocabulary(env, key, path, run.plan.table.config),
                                   .sequence = run.config.batch.sequence,
                                   .seed = run.config.seed,
                                   .order = order})
      .or_throw();
}

void prepare_directory(Env& env, const RunConfig& config) {
  const std::string resolved = join_path(config.out, "run.toml");
  if (env.exists(resolved) && !config.overwrite) {
    throw Error(Failure{.option = "out.directory",
                        .value = config.out,
                        .rule = "holds a run already, and is not overwritten unless asked",
                        .nearest = "another --out, or --overwrite"});
  }
  env.make_directories(config.out);
  const std::string metrics = join_path(config.out, "metrics.jsonl");
  if (env.exists(metrics)) env.remove_file(metrics);
  env.write_file_atomically(resolved, to_toml(config));
}

class Run {
 public:
  Run(Env& env, Log& log, const ResolvedRun& run, const TrainHooks& hooks)
      : env_(env),
        log_(log),
        run_(run),
        hooks_(hooks),
        tokens_(open_tokens(env, "data.train", run.config.train_tokens, run, data::Order::kShuffled)),
        progress_(hooks.terminal, run.config.steps, run.config.log_interval, hooks.put) {
    if (!run.config.validation_tokens.empty()) {
      validation_.emplace(
          open_tokens(env, "data.validation", run.config.validation_tokens, run, data::Order::kInOrder));
    }
    const std::int64_t count = run.config.batch.micro_batch * run.config.batch.sequence;
    inputs_.resize(static_cast<std::size_t>(count));
    targets_.resize(inputs_.size());
  }

  TrainOutcome train() {
    prepare_directory(env_, run_.config);
    start();
    telemetry::MetricsWriter metrics(env_, join_path(run_.config.out, "metrics.jsonl"));
    for (std::int64_t step = 1; step <= run_.config.steps; ++step) {
      const telemetry::StepRecord record = one_step(step);
      metrics.write(record);
      progress_.step(record);
      outcome_.last = record;
      outcome_.steps_done = step;
      if (hooks_.stop_requested && hooks_.stop_requested()) {
        outcome_.interrupted = step < run_.config.steps;
        break;
      }
    }
    progress_.finish();
    metrics.close();
    finish();
    return outcome_;
  }

 private:
  void start() {
    const parallel::RunPlan& plan = run_.plan;
    std::unique_ptr<kernels::Device> device = kernels::make_cpu_device(plan.inputs.threads);
    outcome_.gemm_flops_per_s = measure_gemm_rate(env_, *device);
    log_.info("{} compute thread{}, measured GEMM rate {}", plan.inputs.threads, plan.inputs.threads == 1 ? "" : "s",
              format_flops_rate(outcome_.gemm_flops_per_s));
    rank_ = std::make_unique<parallel::LocalRank>(env_, log_, std::move(device), plan,
                                                  parallel::LocalRankOptions{.seed = run_.config.seed});
    if (run_.config.model_weights.empty()) {
      initialise_weights(rank_->device(), plan, run_.config.seed, rank_->executor().state());
    } else {
      import_weights(env_, rank_->device(), plan, run_.config.model_weights, rank_->executor().state());
      log_.info("weights from {}", run_.config.model_weights);
    }
  }

  telemetry::StepRecord one_step(std::int64_t step) {
    const double before = env_.now().count;
    const plan::Batch& batch = run_.config.batch;
    const std::int64_t first = (step - 1) * batch.global_batch;
    for (std::int64_t m = 0; m < plan::micro_batches(run_.config.layout, batch); ++m) {
      const std::int64_t first_sample = first + m * batch.micro_batch;
      tokens_.fill_batch(first_sample, batch.micro_batch, inputs_, targets_);
      std::vector<std::uint64_t> samples;
      for (std::int64_t s = 0; s < batch.micro_batch; ++s) {
        samples.push_back(static_cast<std::uint64_t>(first_sample + s));
      }
      rank_->executor().load_micro_batch(static_cast<int>(m), inputs_, targets_, samples);
    }
    telemetry::StepRecord record{.step = step};
    record.learning_rate = optim::learning_rate_at(run_.config.learning_rate, step - 1);
    const parallel::StepResult result = rank_->executor().step(
        {.step = step, .learning_rate = record.learning_rate, .optimizer = run_.config.optimizer});
    record.loss = result.loss;
    record.grad_norm = result.grad_norm;
    record.clip_factor = result.clip_factor;
    record.step_s = env_.now().count - before;
    const auto step_tokens = static_cast<double>(plan::tokens_per_step(batch));
    record.tokens = step * plan::tokens_per_step(batch);
    record.tokens_per_s = step_tokens / record.step_s;
    record.mfu = model::model_flops(run_.plan.table.config, batch.global_batch, batch.sequence).count /
                 (record.step_s * outcome_.gemm_flops_per_s);
    record.resident_bytes = env_.resident_memory().anonymous.count;
    if (validation_due(step)) record.validation_loss = outcome_.validation_loss = validation_loss();
    return record;
  }

  bool validation_due(std::int64_t step) const {
    if (!validation_) return false;
    const std::int64_t interval = run_.config.validation_interval;
    return step == run_.config.steps || (interval > 0 && step % interval == 0);
  }

  double validation_loss() {
    const std::int64_t micro_batch = run_.config.batch.micro_batch;
    const std::int64_t available = std::max<std::int64_t>(1, validation_->samples_per_epoch() / micro_batch);
    const std::int64_t rounds = std::min(run_.config.validation_micro_batches, available);
    ExactSum sum;
    for (std::int64_t i = 0; i < rounds; ++i) {
      validation_->fill_batch(i * micro_batch, micro_batch, inputs_, targets_);
      sum.add(rank_->executor().evaluate(inputs_, targets_));
    }
    return sum.value() / static_cast<double>(rounds * micro_batch * run_.config.batch.sequence);
  }

  void finish() {
    outcome_.predicted = rank_->predicted();
    outcome_.counted = rank_->counted();
    outcome_.resident = env_.resident_memory().anonymous;
    outcome_.out = run_.config.out;
    const std::string fault = Ledger::first_difference(outcome_.predicted, outcome_.counted);
    if (!fault.empty()) log_.warning("the ledger is not what the plan predicted: {}", fault);
    export_model(env_, rank_->device(), run_.plan, join_path(run_.config.out, "model"), rank_->executor().state());
  }

  Env& env_;
  Log& log_;
  const ResolvedRun& run_;
  const TrainHooks& hooks_;
  data::Sampler tokens_;
  std::optional<data::Sampler> validation_;
  Progress progress_;
  std::unique_ptr<parallel::LocalRank> rank_;
  std::vector<std::int32_t> inputs_, targets_;
  TrainOutcome outcome_;
};

}  // namespace

ResolvedRun resolve_run(Env& env, const RunConfig& config) {
  if (Status status = check_engine(config.layout); !status) throw Error(status.failure());
  ResolvedRun run{.config = config, .plan = {}};
  run.config.threads = config.threads > 0 ? config.threads : env.core_count();
  const model::Config model_config = model::load_config(env, config.model_config).or_throw();
  run.plan = parallel::make_run_plan(
      model_config, config.layout, config.batch,
      {.threads = static_cast<int>(run.config.threads),
       .compute = DType::kF32,
       .evaluation_micro_batches = config.validation_tokens.empty() ? 0 : config.validation_micro_batches},
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

TrainOutcome train(Env& env, Log& log, const ResolvedRun& run, const TrainHooks& hooks) {
  return Run(env, log, run, hooks).train();
}

}  // namespace trireme::train
