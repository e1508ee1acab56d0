#include "engine/train/trainer.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "engine/data/sampler.h"
#include "engine/data/tokenize.h"
#include "engine/parallel/rank.h"
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

// data.json says how many tokens the files beside it have.
void check_count(Env& env, const std::string& key, const std::string& path, const data::TokenFile& file) {
  const std::string directory = directory_name(path);
  if (!env.exists(join_path(directory, data::kInfoFile))) return;
  const data::DataInfo info = data::load_data_info(env, directory).or_throw();
  const std::string name = base_name(path);
  const std::int64_t expected = name == data::kTrainFile        ? info.train_tokens
                                : name == data::kValidationFile ? info.validation_tokens
                                                                : file.tokens();
  if (file.tokens() == expected) return;
  throw Error(Failure{.option = key,
                      .value = path,
                      .rule = fmt::format("holds {} tokens, and {} beside it says {}: truncated, or of another text",
                                          file.tokens(), data::kInfoFile, expected),
                      .nearest = "trireme data tokenize TEXT --out DIR makes it again"});
}

data::Sampler open_tokens(Env& env, const std::string& key, const std::string& path, const ResolvedRun& run,
                          data::Order order) {
  if (!env.exists(path)) {
    throw Error(Failure{.option = key,
                        .value = path,
                        .rule = "there is no such file",
                        .nearest = "trireme data tokenize TEXT --out DIR makes one"});
  }
  data::Sampler sampler =
      data::Sampler::open(env, {.path = path,
                                .vocabulary = file_vocabulary(env, key, path, run.plan.table.config),
                                .sequence = run.config.batch.sequence,
                                .seed = run.config.seed,
                                .order = order})
          .or_throw();
  check_count(env, key, path, sampler.file());
  return sampler;
}

data::Sampler open_validation(Env& env, const ResolvedRun& run) {
  const RunConfig& config = run.config;
  data::Sampler sampler = open_tokens(env, "data.validation", config.validation_tokens, run, data::Order::kInOrder);
  const std::int64_t available = sampler.samples_per_epoch() / config.batch.micro_batch;
  if (config.validation_micro_batches > available) {
    throw Error(Failure{.option = "train.validation_micro_batches",
                        .value = fmt::format("{}", config.validation_micro_batches),
                        .rule = fmt::format("{} holds {} micro-batches of {} x {} tokens", config.validation_tokens,
                                            available, config.batch.micro_batch, config.batch.sequence),
                        .nearest = available > 0 ? fmt::format("{}", available) : "a smaller train.micro_batch"});
  }
  return sampler;
}

// Files that a run writes. They are replaced only where overwriting was asked for.
std::vector<std::string> run_files(Env& env, const std::string& out) {
  std::vector<std::string> files{join_path(out, "run.toml"), join_path(out, "metrics.jsonl")};
  const std::string model = join_path(out, "model");
  if (env.exists(model) && env.is_directory(model)) {
    for (const std::string& name : env.list_directory(model)) {
      const bool ours = name == "config.json" || name.find(".safetensors") != std::string::npos;
      if (ours) files.push_back(join_path(model, name));
    }
  }
  return files;
}

void check_directory(Env& env, const RunConfig& config) {
  if (env.exists(config.out) && !env.is_directory(config.out)) {
    throw Error(Failure{.option = "out.directory", .value = config.out, .rule = "is a file", .nearest = ""});
  }
  if (config.overwrite || !env.exists(config.out)) return;
  for (const std::string& file : run_files(env, config.out)) {
    if (!env.exists(file)) continue;
    throw Error(Failure{.option = "out.directory",
                        .value = config.out,
                        .rule = fmt::format("holds {} already, and is not overwritten unless asked", base_name(file)),
                        .nearest = "another --out, or --overwrite"});
  }
}

// Claims the directory, removes what an earlier run left, and keeps the resolved run.
std::unique_ptr<FileLock> open_directory(Env& env, const RunConfig& config) {
  env.make_directories(join_path(config.out, "model"));
  std::unique_ptr<FileLock> lock = env.try_lock(join_path(config.out, ".lock"));
  if (lock == nullptr) {
    throw Error(Failure{.option = "out.directory",
                        .value = config.out,
                        .rule = "another run is writing there",
                        .nearest = "another --out"});
  }
  check_directory(env, config);  // what came in between
  for (const std::string& file : run_files(env, config.out)) {
    if (env.exists(file)) env.remove_file(file);
  }
  RunConfig resolved = config;
  resolved.overwrite = false;  // a consent for this time
  env.write_file_atomically(join_path(config.out, "run.toml"), to_toml(resolved));
  return lock;
}

// Refused before anything is allocated: the host has less left than the plan needs.
void check_memory(Env& env, const parallel::RunPlan& plan) {
  const Bytes needed = parallel::predicted_ledger(plan).peak_sum();
  const Bytes available = env.available_memory();
  if (needed <= available) return;
  throw Error(
      Failure{.option = "memory",
              .value = format_bytes(needed),
              .rule = fmt::format("the run needs that at its peak, and the host has {} left", format_bytes(available)),
              .nearest = "a smaller train.micro_batch, --layout.recompute full, or a smaller model",
              .code = ExitCode::kDoesNotFit});
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
    if (!run.config.validation_tokens.empty()) validation_ = open_validation(env, run);
    const std::int64_t count = run.config.batch.micro_batch * run.config.batch.sequence;
    inputs_.resize(static_cast<std::size_t>(count));
    targets_.resize(inputs_.size());
  }

  TrainOutcome train() {
    start();
    const std::unique_ptr<FileLock> lock = open_directory(env_, run_.config);
    telemetry::MetricsWriter metrics(env_, join_path(run_.config.out, "metrics.jsonl"));
    for (std::int64_t step = 1; step <= run_.config.steps; ++step) {
      const telemetry::StepRecord record = one_step(step);
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
    rank_ = std::make_unique<parallel::Rank>(env_, log_, std::move(device), plan,
                                                  parallel::RankOptions{.seed = run_.config.seed});
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
    record.step_s = std::max(env_.now().count - before, 1e-9);  // a clock may stand still
    const auto step_tokens = static_cast<double>(plan::tokens_per_step(batch));
    record.tokens = step * plan::tokens_per_step(batch);
    record.tokens_per_s = step_tokens / record.step_s;
    record.mfu = model::model_flops(run_.plan.table.config, batch.global_batch, batch.sequence).count /
                 (record.step_s * outcome_.gemm_flops_per_s);
    record.resident_bytes = env_.resident_memory().anonymous.count;
    if (validation_due(step)) {
      record.validation_loss = validation_loss();
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

  // None where the run was asked to stop meanwhile.
  std::optional<double> validation_loss() {
    const std::int64_t micro_batch = run_.config.batch.micro_batch;
    const std::int64_t rounds = run_.config.validation_micro_batches;
    ExactSum sum;
    for (std::int64_t i = 0; i < rounds; ++i) {
      if (stop_asked()) return std::nullopt;
      validation_->fill_batch(i * micro_batch, micro_batch, inputs_, targets_);
      sum.add(rank_->executor().evaluate(inputs_, targets_));
    }
    const double loss = sum.value() / static_cast<double>(rounds * micro_batch * run_.config.batch.sequence);
    if (!std::isfinite(loss)) {
      throw Error(ExitCode::kDiverged, "train", "validation", fmt::format("the validation loss is {}", loss),
                  "lower optimizer.learning_rate, lengthen warm-up, or clip");
    }
    return loss;
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
  std::unique_ptr<parallel::Rank> rank_;
  std::vector<std::int32_t> inputs_, targets_;
  TrainOutcome outcome_;
};

}  // namespace

ResolvedRun resolve_run(Env& env, const RunConfig& config) {
  if (Status status = check_engine(config.layout); !status) throw Error(status.failure());
  ResolvedRun run{.config = config, .plan = {}};
  run.config.threads = config.threads > 0 ? config.threads : env.core_count();
  const model::Config model_config = model::load_config(env, config.model_config).or_throw();
  if (Status status = model::check_trainable(model_config); !status) throw Error(status.failure());
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

void check_run(Env& env, const ResolvedRun& run) {
  open_tokens(env, "data.train", run.config.train_tokens, run, data::Order::kShuffled);
  if (!run.config.validation_tokens.empty()) open_validation(env, run);
  if (!run.config.model_weights.empty() && !env.exists(run.config.model_weights)) {
    throw Error(Failure{.option = "model.weights",
                        .value = run.config.model_weights,
                        .rule = "there is no such file or directory",
                        .nearest = ""});
  }
  check_directory(env, run.config);
  check_memory(env, run.plan);
}

TrainOutcome train(Env& env, Log& log, const ResolvedRun& run, const TrainHooks& hooks) {
  check_run(env, run);
  return Run(env, log, run, hooks).train();
}

}  // namespace trireme::train
