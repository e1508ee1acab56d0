#include "engine/train/trainer.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "engine/train/control.h"
#include "engine/train/peak.h"
#include "engine/train/placement.h"
#include "engine/train/progress.h"
#include "engine/train/rank_trainer.h"
#include "engine/train/run_checks.h"
#include "engine/train/run_trace.h"
#include "engine/train/weights.h"
#include "model/flops.h"

namespace trireme::train {
namespace {

// What the backend lacks is refused by name before anything is allocated.
Status check_backend(const plan::Layout& layout, plan::Backend backend) {
  if (layout.all_reduce != ReduceAlgorithm::kLibrary || backend != plan::Backend::kThreads) return ok_status();
  return Failure{.option = "layout.all_reduce",
                 .value = std::string(reduce_algorithm_name(layout.all_reduce)),
                 .rule = "ranks that are threads of one process have no communication library",
                 .nearest = "ordered, or ranks that mpirun or srun starts"};
}

// The part of a run that this process has: one rank or, with threads, all of them.
class Run {
 public:
  Run(Env& env, Log& log, const ResolvedRun& run, RunWorld& world, const TrainHooks& hooks)
      : env_(env),
        log_(log),
        run_(run),
        hooks_(hooks),
        world_(world),
        tokens_(open_training(env, run)),
        progress_(hooks.terminal, run.config.steps, run.config.log_interval, hooks.put) {
    if (!run.config.validation_tokens.empty()) validation_ = open_validation(env, run);
  }

  TrainOutcome train() {
    world_.set_deadline(Seconds{run_.config.start_deadline_s});
    run_ranks(world_, [&](int rank) { one_rank(rank); });
    world_.shut_down();
    return outcome_;
  }

 private:
  int ranks() const { return world_.ranks(); }

  void one_rank(int number) {
    Control control(number, ranks(), world_.factory(number));
    const std::vector<std::string> hosts = control.share(env_.host_name());
    place(control, hosts);
    if (control.leads()) {
      check_directory(env_, run_.config);
      measure();
    }
    control.decide(0);  // nobody takes memory for a run that the leader refuses
    RankTrainer rank(env_, log_, run_, number, kernels::make_cpu_device(run_.plan.inputs.threads),
                     world_.factory(number), tokens_, validation_ ? &*validation_ : nullptr, {}, host_numbers(hosts));
    RunTrace trace(env_, log_, run_, rank.rank(), hosts);
    try {
      control.leads() ? lead(rank, control, trace) : follow(rank, control, trace);
    } catch (const Error& error) {
      if (error.code() == ExitCode::kHang) tell_last_operations(rank.rank());
      throw;
    }
  }

  // What a rank that has waited in vain did before.
  void tell_last_operations(parallel::Rank& rank) {
    constexpr std::size_t kTold = 8;
    const std::vector<telemetry::OperationRecord> records = rank.communication().last_operations.records();
    const Seconds now = comm::on_the_clock(comm::Clock::now());
    std::string text;
    for (std::size_t i = records.size() - std::min(records.size(), kTold); i < records.size(); ++i) {
      text += "\n  " + telemetry::to_text(records[i], now);
    }
    log_.warning("rank {}'s last operations:{}", rank.plan().rank, text);
  }

  // Where the ranks are, known to all of them, and what that forbids.
  void place(const Control& control, const std::vector<std::string>& hosts) {
    if (control.leads()) {
      log_.info("{}; {}", world_.text(), describe_hosts(hosts));
      const std::string crossings = describe_crossings(run_.config.layout, hosts);
      if (!crossings.empty()) log_.info("{}", crossings);
      say_what_sums_promise();
    }
    if (Status status = check_placement(run_.config.layout, hosts, run_.config.allow_slow_tp); !status) {
      throw Error(status.failure());
    }
    std::vector<int> neighbours;
    for (int rank = 0; rank < ranks(); ++rank) {
      if (hosts[static_cast<std::size_t>(rank)] == env_.host_name()) neighbours.push_back(rank);
    }
    if (neighbours.front() == control.rank()) check_memory(env_, run_, neighbours);
    ranks_here_ = static_cast<int>(neighbours.size());
  }

  void say_what_sums_promise() {
    const plan::Layout& layout = run_.config.layout;
    if (layout.all_reduce == ReduceAlgorithm::kOrdered || layout.dp <= 2) return;
    log_.info(
        "layout.all_reduce = {}: sums over replicas are the same from run to run, but outside the promise that layouts "
        "keep the same bits; ordered keeps it",
        reduce_algorithm_name(layout.all_reduce));
  }

  // The rate that MFU is of: what all ranks of the leader's host reach together, for as many hosts as there are.
  void measure() {
    const int threads = run_.plan.inputs.threads;
    const int all = std::min(env_.core_count(), threads * ranks_here_);
    const std::unique_ptr<kernels::Device> device = kernels::make_cpu_device(std::max(1, all));
    outcome_.gemm_flops_per_s = measure_gemm_rate(env_, *device) * ranks() / ranks_here_;
    log_.info("{} rank{} x {} compute thread{}, measured GEMM rate {}", ranks(), ranks() == 1 ? "" : "s", threads,
              threads == 1 ? "" : "s", format_flops_rate(outcome_.gemm_flops_per_s));
  }

  enum Word : std::int64_t { kEnd, kStep };

  // Rank 0: steps, metrics, the decision to go on, the model at the end.
  void lead(RankTrainer& rank, Control& control, RunTrace& trace) {
    if (!run_.config.model_weights.empty()) log_.info("weights from {}", run_.config.model_weights);
    const std::unique_ptr<FileLock> lock = open_directory(env_, run_.config);
    telemetry::MetricsWriter metrics(env_, join_path(run_.config.out, "metrics.jsonl"));
    for (std::int64_t step = 1; step <= run_.config.steps; ++step) {
      control.decide(kStep);
      trace.before_step(step);
      const telemetry::StepRecord record = one_step(rank, step);
      trace.after_step(step, control);
      metrics.write(record);
      progress_.step(record);
      outcome_.last = record;
      outcome_.steps_done = step;
      if (step == 1) world_.set_deadline(Seconds{run_.config.deadline_s});
      if (stop_asked()) {
        outcome_.interrupted = step < run_.config.steps;
        break;
      }
    }
    control.decide(kEnd);
    trace.end(outcome_.steps_done, control);
    progress_.finish();
    metrics.close();
    outcome_.predicted = rank.rank().predicted();
    outcome_.counted = rank.rank().counted();
    outcome_.resident = env_.resident_memory().anonymous;
    outcome_.out = run_.config.out;
    finish(rank, control);
  }

  void follow(RankTrainer& rank, Control& control, RunTrace& trace) {
    std::int64_t step = 0;
    while (control.decide(kEnd) == kStep) {
      ++step;
      trace.before_step(step);
      rank.step(step);
      if (step == 1) world_.set_deadline(Seconds{run_.config.deadline_s});
      const std::int64_t rounds = validation_due(step) ? run_.config.validation_micro_batches : 0;
      for (std::int64_t i = 0; i < rounds; ++i) rank.validate(i);
      trace.after_step(step, control);
    }
    trace.end(step, control);
    finish(rank, control);
  }

  // Every rank's prediction is compared with what it counted; then the model.
  void finish(RankTrainer& rank, Control& control) {
    const std::string own = to_json(make_rank_report(rank.rank(), rank.last_traffic(), env_)).dump();
    for (const std::string& text : control.gather(own)) {
      const RankReport report = rank_report_from_json(parse_json(text, "a rank's report").or_throw());
      for (const std::string& fault : {report.ledger_fault, report.traffic_fault}) {
        if (!fault.empty()) log_.warning("rank {} is not what the plan predicted: {}", report.rank, fault);
      }
      outcome_.ranks.push_back(report);
    }
    export_model(env_, {rank.rank().plan(), rank.rank().device(), rank.rank().executor().state()}, control,
                 join_path(run_.config.out, "model"));
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
    for (const auto& [axis, times] : rank.last_times()) {
      record.communication.push_back({axis, times.under_way.count, times.exposed.count});
    }
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

  Env& env_;
  Log& log_;
  const ResolvedRun& run_;
  const TrainHooks& hooks_;
  RunWorld& world_;
  data::Sampler tokens_;
  std::optional<data::Sampler> validation_;
  Progress progress_;
  std::atomic<int> ranks_here_ = 1;  // ranks of this host
  TrainOutcome outcome_;             // the leader's
};

}  // namespace

ResolvedRun resolve_run(Env& env, const RunConfig& config, const ResolveOptions& options) {
  if (Status status = check_backend(config.layout, options.backend); !status) throw Error(status.failure());
  ResolvedRun run{.config = config, .plan = {}};
  const int ranks_here = options.ranks_here > 0 ? options.ranks_here : config.layout.world();
  const int share = std::max(1, env.core_count() / std::max(1, ranks_here));
  run.config.threads = config.threads > 0 ? config.threads : share;
  model::Config model_config = model::load_config(env, config.model_config).or_throw();
  if (options.layers > 0) model_config.layers = options.layers;
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
       .masked_targets = config.ignore >= 0,
       .backend = options.backend},
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

namespace {

// What every process of the run can refuse by itself.
void check_run(Env& env, const ResolvedRun& run) {
  open_training(env, run);
  if (!run.config.validation_tokens.empty()) open_validation(env, run);
  if (!run.config.model_weights.empty() && !env.exists(run.config.model_weights)) {
    throw Error(Failure{.option = "model.weights",
                        .value = run.config.model_weights,
                        .rule = "there is no such file or directory",
                        .nearest = ""});
  }
}

}  // namespace

void check_dry_run(Env& env, const ResolvedRun& run) {
  check_run(env, run);
  check_directory(env, run.config);
  std::vector<int> all(static_cast<std::size_t>(run.config.layout.world()));
  std::iota(all.begin(), all.end(), 0);
  check_memory(env, run, all);
}

TrainOutcome train(Env& env, Log& log, const ResolvedRun& run, RunWorld& world, const TrainHooks& hooks) {
  TRIREME_CHECK_EQ(world.ranks(), run.config.layout.world());
  TRIREME_CHECK(world.backend() == run.plan.inputs.backend, "the plan is of another backend than {}", world.text());
  check_run(env, run);
  return Run(env, log, run, world, hooks).train();
}

}  // namespace trireme::train
