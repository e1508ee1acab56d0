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
#include "engine/train/run_directory.h"
#include "engine/train/run_progress.h"
#include "engine/train/run_trace.h"
#include "engine/train/same_run.h"
#include "engine/train/weights.h"
#include "model/flops.h"

namespace trireme::train {
namespace {

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
  bool saves() const { return run_.config.save_interval.kind != SaveInterval::Kind::kNone; }

  void one_rank(int number) {
    Control control(number, ranks(), world_.factory(number));
    const std::vector<std::string> hosts = control.share(env_.host_name());
    place(control, hosts);
    RunStart start;
    if (control.leads()) {
      start = find_start(env_, run_.config);
      check_start(env_, run_, start, tokens_);
      check_room(env_, run_);
      measure();
    }
    control.decide(0);  // nobody takes memory for a run that the leader refuses
    RankTrainer rank(env_, log_, run_, number, kernels::make_cpu_device(run_.plan.inputs.threads),
                     world_.factory(number), tokens_, validation_ ? &*validation_ : nullptr, {}, host_numbers(hosts));
    RunTrace trace(env_, log_, run_, rank.rank(), hosts);
    try {
      const std::unique_ptr<FileLock> lock =
          control.leads() ? claim_directory(env_, run_.config, start) : std::unique_ptr<FileLock>();
      if (saves()) check_shared(env_, run_.config.out, hosts, control);
      const Resumed from = load_checkpoint(env_, log_, run_, start.checkpoints, tokens_, control, rank);
      check_trace_steps(from.progress.step);
      from.path.empty() ? rank.initialise() : rank.go_on_from(from.progress);
      if (control.leads()) prepare_directory(env_, run_.config, start);
      control.leads() ? lead(rank, control, trace, start, from) : follow(rank, control, trace, from.progress.step);
    } catch (const Error& error) {
      if (error.code() == ExitCode::kHang) tell_last_operations(rank.rank());
      throw;
    }
  }

  // Steps that were done before this start cannot be traced.
  void check_trace_steps(std::int64_t done) const {
    const RunConfig& config = run_.config;
    if (config.trace.empty() || done == 0 || config.trace_first > done) return;
    throw Error(
        Failure{.option = "out.trace_steps",
                .value = fmt::format("{}-{}", config.trace_first, config.trace_last),
                .rule = fmt::format("the run goes on from step {}", done),
                .nearest = fmt::format("{}-{}", std::min(done + 3, config.steps), std::min(done + 5, config.steps))});
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

  enum Word : std::int64_t { kEnd, kStep, kSave, kWait };

  void make_saver(std::optional<RunSaver>& saver, RankTrainer& rank, Control& control, const SaveFacts* facts,
                  SaveSchedule* schedule) {
    if (!saves()) return;
    saver.emplace(env_, log_, checkpoints_of(run_.config.out), rank.rank().plan(), rank.rank().device(), control, facts,
                  schedule);
  }

  // What rank 0 decides with.
  struct Lead {
    RankTrainer& rank;
    Control& control;
    RunTrace& trace;
    RunProgress progress;
    SaveFacts facts;
    SaveSchedule schedule;
    telemetry::MetricsWriter metrics;
    std::optional<RunSaver> saver = std::nullopt;
    std::optional<double> stall_s = std::nullopt;  // of a save since the last step

    // Before every word all ranks ask how a save stands.
    void say(Word word) {
      if (saver) saver->poll();
      control.decide(word);
    }
    void save(std::int64_t step, const char* reason) {
      say(kSave);
      saver->save(rank.rank().executor().state(), progress.at(step), reason);
      stall_s = saver->last_stall().count;
    }
  };

  // Rank 0: steps, metrics, the decisions to go on and to save, the model at the end.
  void lead(RankTrainer& rank, Control& control, RunTrace& trace, const RunStart& start, const Resumed& from) {
    if (from.path.empty() && !run_.config.model_weights.empty()) {
      log_.info("weights from {}", run_.config.model_weights);
    }
    if (start.continues) tidy_checkpoints(from.progress.step);
    const std::string path = metrics_of(run_.config.out);
    const RunProgress progress(env_, run_, from, telemetry::rewind_metrics(env_, path, from.progress.step));
    Lead lead{.rank = rank,
              .control = control,
              .trace = trace,
              .progress = progress,
              .facts = progress.facts(data_identity(tokens_)),
              .schedule = SaveSchedule(progress.policy(), progress.first_step()),
              .metrics = telemetry::MetricsWriter(env_, path)};
    make_saver(lead.saver, rank, control, &lead.facts, &lead.schedule);
    if (lead.saver) tell_room(*lead.saver);
    steps(lead);
    // A run that another's checkpoint has finished already gets it too: its directory needs no other.
    if (lead.saver && (outcome_.steps_done != from.progress.step || !start.continues)) save_last(lead);
    lead.say(kEnd);
    if (lead.saver) lead.saver->wait();
    trace.end(outcome_.steps_done, control);
    progress_.finish();
    lead.metrics.close();
    outcome_.predicted = rank.rank().predicted();
    outcome_.counted = rank.rank().counted();
    outcome_.resident = env_.resident_memory().anonymous;
    outcome_.out = run_.config.out;
    finish(rank, control);
  }

  void steps(Lead& lead) {
    const std::int64_t first = lead.progress.first_step() + 1;
    outcome_.first_step = first;
    outcome_.steps_done = first - 1;
    for (std::int64_t step = first; step <= run_.config.steps; ++step) {
      lead.say(kStep);
      lead.trace.before_step(step);
      const telemetry::StepRecord record = one_step(lead, step);
      lead.trace.after_step(step, lead.control);
      lead.metrics.write(record);
      progress_.step(record);
      outcome_.last = record;
      outcome_.steps_done = step;
      if (step == first) world_.set_deadline(Seconds{run_.config.deadline_s});
      if (stop_asked()) {
        outcome_.interrupted = step < run_.config.steps;
        return;
      }
      lead.schedule.step_done(step, Seconds{record.step_s});
      if (!lead.saver || step == run_.config.steps) continue;
      if (const std::string news = lead.schedule.take_news(); !news.empty()) log_.info("{}", news);
      if (lead.schedule.due(step) && lead.saver->has_room()) lead.save(step, "interval");
    }
  }

  // The disk may be large enough for one checkpoint, and too small for those that are to stay and one more.
  void tell_room(const RunSaver& saver) {
    const std::int64_t count = run_.config.retention.keep_last + 1;
    const Bytes left = env_.free_space(checkpoints_of(run_.config.out)), wanted{count * saver.bytes().count};
    if (left >= wanted) return;
    log_.warning("the disk of {} has {} left; {} checkpoints, which is what there can be at once, take {}",
                 run_.config.out, format_bytes(left), count, format_bytes(wanted));
  }

  // What a run that ends in order leaves.
  void save_last(Lead& lead) {
    const std::int64_t done = outcome_.steps_done;
    if (done == lead.saver->saved_step()) return;
    lead.say(kWait);  // whatever comes of this one, the one before is there
    lead.saver->wait();
    if (!lead.saver->has_room()) {
      throw Error(ExitCode::kStorage, "checkpoint", fmt::format("save step {}", done), "there is no room for it",
                  fmt::format("free {} on the disk of {}", format_bytes(lead.saver->bytes()), run_.config.out));
    }
    lead.save(done, outcome_.interrupted ? "stop" : "end");
  }

  // `step` was loaded whole. Sets aside what is beyond it: steps that this run will do anew, or damaged ones. Then
  // removes what an earlier start was killed before removing; it may be that nothing is saved any more.
  void tidy_checkpoints(std::int64_t step) {
    checkpoint::Store store(env_, checkpoints_of(run_.config.out));
    for (const std::string& name : store.set_aside_after(step)) {
      log_.warning("a checkpoint beyond step {} is kept aside as {}", step, join_path(store.directory(), name));
    }
    if (saves()) store.retain(run_.config.retention);
  }

  void follow(RankTrainer& rank, Control& control, RunTrace& trace, std::int64_t first_step) {
    std::optional<RunSaver> saver;
    make_saver(saver, rank, control, nullptr, nullptr);
    std::int64_t step = first_step;
    for (;;) {
      if (saver) saver->poll();
      const std::int64_t word = control.decide(kEnd);
      if (word == kEnd) break;
      if (word == kSave) {
        saver->save(rank.rank().executor().state(), {.step = step}, "");
        continue;
      }
      if (word == kWait) {
        saver->wait();
        continue;
      }
      ++step;
      trace.before_step(step);
      rank.step(step);
      if (step == first_step + 1) world_.set_deadline(Seconds{run_.config.deadline_s});
      const std::int64_t rounds = validation_due(step) ? run_.config.validation_micro_batches : 0;
      for (std::int64_t i = 0; i < rounds; ++i) rank.validate(i);
      trace.after_step(step, control);
    }
    if (saver) saver->wait();
    trace.end(step, control);
    finish(rank, control);
  }

  // Every rank's prediction is compared with what it counted; then the model.
  void finish(RankTrainer& rank, Control& control) {
    const std::string own = to_json(make_rank_report(rank.rank(), rank.last_traffic(), env_)).dump();
    const bool stepped = outcome_.last.has_value();  // else nothing is to be compared
    for (const std::string& text : control.gather(own)) {
      RankReport report = rank_report_from_json(parse_json(text, "a rank's report").or_throw());
      if (!stepped) report.ledger_fault = report.traffic_fault = "";
      for (const std::string& fault : {report.ledger_fault, report.traffic_fault}) {
        if (!fault.empty()) log_.warning("rank {} is not what the plan predicted: {}", report.rank, fault);
      }
      outcome_.ranks.push_back(report);
    }
    export_model(env_, {rank.rank().plan(), rank.rank().device(), rank.rank().executor().state()}, control,
                 join_path(run_.config.out, "model"));
  }

  telemetry::StepRecord one_step(Lead& lead, std::int64_t step) {
    RankTrainer& rank = lead.rank;
    const double before = env_.now().count;
    const plan::Batch& batch = run_.config.batch;
    telemetry::StepRecord record{.step = step};
    record.incarnation = lead.progress.incarnation();
    record.save_stall_s = std::exchange(lead.stall_s, std::nullopt);
    record.learning_rate = optim::learning_rate_at(run_.config.learning_rate, step - 1);
    const parallel::StepResult result = rank.step(step);
    record.loss = result.loss;
    record.grad_norm = result.grad_norm;
    record.clip_factor = result.clip_factor;
    record.step_s = std::max(env_.now().count - before, 1e-9);  // a clock may stand still
    const auto step_tokens = static_cast<double>(plan::tokens_per_step(batch));
    record.tokens = lead.progress.at(step).tokens;
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

TrainOutcome train(Env& env, Log& log, const ResolvedRun& run, RunWorld& world, const TrainHooks& hooks) {
  TRIREME_CHECK_EQ(world.ranks(), run.config.layout.world());
  TRIREME_CHECK(world.backend() == run.plan.inputs.backend, "the plan is of another backend than {}", world.text());
  check_run(env, run);
  return Run(env, log, run, world, hooks).train();
}

}  // namespace trireme::train
