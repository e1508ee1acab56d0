#include "engine/train/trainer.h"

#include <algorithm>
#include <atomic>

#include <fmt/format.h>

#include "base/patient_env.h"
#include "engine/train/peak.h"
#include "engine/train/placement.h"
#include "engine/train/run_checks.h"
#include "engine/train/run_directory.h"
#include "engine/train/run_loops.h"

namespace trireme::train {
namespace {

using telemetry::Phase;

// The part of a run that this process has: one rank or, with threads, all of them.
class Run {
 public:
  Run(Env& env, Log& log, const ResolvedRun& run, RunWorld& world, const TrainHooks& hooks)
      : at_once_(env),
        env_(env, log, run.config.out),
        log_(log),
        run_(run),
        hooks_(hooks),
        world_(world),
        tokens_(open_training(env, run)),
        progress_(hooks.screen, run.config.steps, run.config.log_interval, env.now()),
        begun_(env.now()) {
    if (!run.config.validation_tokens.empty()) validation_ = open_validation(env, run);
  }

  TrainOutcome train() {
    world_.set_deadline(Seconds{run_.config.start_deadline_s});
    // The supervisor has made the directory: that it is not there now is no new run.
    if (hooks_.incarnation && world_.leads()) env_.watch();
    run_ranks(world_, [&](int rank) {
      RankWatch watch(env_, at_once_, log_, run_, hooks_, rank);
      try {
        one_rank(rank, watch);
      } catch (const std::exception& error) {
        watch.failed(error);
        throw;
      }
    });
    world_.shut_down();
    for (int rank : world_.own_ranks())
      hooks_.reporter->send(telemetry::RankEnded{.rank = rank, .code = 0, .message = ""});
    return outcome_;
  }

 private:
  int ranks() const { return world_.ranks(); }

  void one_rank(int number, RankWatch& watch) {
    watch.at(Phase::kStart);
    Control control(number, ranks(), world_.factory(number));
    const std::vector<std::string> hosts = control.share(env_.host_name());
    place(control, hosts, watch.log());
    RunStart start;
    if (control.leads()) {
      tell_faults(watch.log());
      start = find_start(env_, run_.config);
      check_start(env_, run_, start, tokens_);
      if (start.checkpoints.empty()) check_weights(env_, run_);
      if (!hooks_.incarnation) check_tokens(env_, watch.log(), run_);  // a supervisor has done so, once for all starts
      check_room(env_, run_);
      measure_first(watch.log());
    }
    control.decide(0);  // nobody takes memory for a run that the leader refuses
    RankTrainer rank(env_, watch.log(), run_, number, kernels::make_cpu_device(run_.plan.inputs.threads),
                     world_.factory(number), tokens_, validation_ ? &*validation_ : nullptr, watch.trainer_hooks(),
                     host_numbers(hosts));
    const RankWatch::Recorded recorded(watch, rank.rank().communication());
    RunTrace trace(env_, watch.log(), run_, rank.rank(), hosts);
    try {
      std::optional<DirectoryClaim> claim;
      if (control.leads()) claim.emplace(at_once_, run_.config, hooks_.incarnation, start);
      if (saves(run_.config)) check_shared(env_, run_.config.out, hosts, control);
      if (control.decide(std::ssize(start.checkpoints)) > 0) watch.at(Phase::kLoad);
      const Resumed from = load_checkpoint(env_, watch.log(), run_, start.checkpoints, tokens_, control, rank);
      check_trace_steps(from.progress.step);
      from.path.empty() ? rank.initialise() : rank.go_on_from(from.progress);
      if (control.leads()) prepare_directory(env_, watch.log(), run_, start);
      control.decide(0);  // the directory is there
      if (control.leads() || saves(run_.config)) env_.watch();
      watch.open_log();
      watch.set_next(from.progress.step + 1);
      watch.at(Phase::kIdle);
      const RankRun own{env_, at_once_, run_, hooks_, world_, watch, control, rank, trace};
      control.leads()
          ? lead(own, {start, from, *claim, tokens_, progress_, begun_, outcome_, [this] { return measure({kAgain}); }})
          : follow(own, from.progress.step);
    } catch (const Error& error) {
      if (error.code() == ExitCode::kHang) tell_last_operations(rank.rank(), watch.log());
      throw;
    }
  }

  void tell_faults(Log& log) const {
    for (const PlannedFault& fault : hooks_.faults) {
      log.warning("a fault is planned: {}{}", to_text(fault),
                  fault.rank < ranks() ? "" : ", for a rank that this run does not have");
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
  void tell_last_operations(parallel::Rank& rank, Log& log) {
    constexpr std::size_t kTold = 8;
    const std::vector<telemetry::OperationRecord> records = rank.communication().last_operations.records();
    const Seconds now = comm::on_the_clock(comm::Clock::now());
    std::string text;
    for (std::size_t i = records.size() - std::min(records.size(), kTold); i < records.size(); ++i) {
      text += "\n  " + telemetry::to_text(records[i], now);
    }
    log.warning("rank {}'s last operations:{}", rank.plan().rank, text);
  }

  // Where the ranks are, known to all of them, and what that forbids.
  void place(const Control& control, const std::vector<std::string>& hosts, Log& log) {
    if (control.leads()) {
      log.info("{}; {}", world_.text(), describe_hosts(hosts));
      const std::string crossings = describe_crossings(run_.config.layout, hosts);
      if (!crossings.empty()) log.info("{}", crossings);
      say_what_sums_promise(log);
    }
    if (Status status = check_placement(run_.config.layout, hosts, run_.config.allow_slow_tp); !status) {
      throw Error(status.failure());
    }
    const std::vector<int> neighbours =
        ranks_of_machine(host_numbers(hosts), control.rank(), run_.config.supervise.rehearsal);
    if (neighbours.front() == control.rank()) check_memory(env_, run_, neighbours);
    ranks_here_ = static_cast<int>(neighbours.size());
  }

  void say_what_sums_promise(Log& log) {
    const plan::Layout& layout = run_.config.layout;
    if (layout.all_reduce == ReduceAlgorithm::kOrdered || layout.dp <= 2) return;
    log.info(
        "layout.all_reduce = {}: sums over replicas are the same from run to run, but outside the promise that layouts "
        "keep the same bits; ordered keeps it",
        reduce_algorithm_name(layout.all_reduce));
  }

  // The rate that MFU is of: what all ranks of the leader's machine reach together, for as many as there are.
  static constexpr double kAtStart = 0.25, kAgain = 0.02;  // seconds, about
  double measure(Seconds budget) {
    const int all = std::min(env_.core_count(), run_.plan.inputs.threads * ranks_here_);
    const std::unique_ptr<kernels::Device> device = kernels::make_cpu_device(std::max(1, all));
    return measure_gemm_rate(env_, *device, run_.plan.inputs.compute, {}, budget) * ranks() / ranks_here_;
  }

  void measure_first(Log& log) {
    outcome_.gemm_flops_per_s = hooks_.gemm_flops_per_s;
    if (outcome_.gemm_flops_per_s > 0) return;
    const int threads = run_.plan.inputs.threads;
    outcome_.gemm_flops_per_s = measure({kAtStart});
    log.info("{} rank{} x {} compute thread{}, measured GEMM rate {} in {}", ranks(), ranks() == 1 ? "" : "s", threads,
             threads == 1 ? "" : "s", format_flops_rate(outcome_.gemm_flops_per_s),
             plan::precision_name(run_.plan.inputs.compute));
  }

  Env& at_once_;    // fails at once
  PatientEnv env_;  // for what the run cannot do without
  Log& log_;
  const ResolvedRun& run_;
  const TrainHooks& hooks_;
  RunWorld& world_;
  data::Sampler tokens_;
  std::optional<data::Sampler> validation_;
  Progress progress_;
  const Seconds begun_;
  std::atomic<int> ranks_here_ = 1;  // ranks of this machine
  TrainOutcome outcome_;             // the leader's
};

}  // namespace

TrainOutcome train(Env& env, Log& log, const ResolvedRun& run, RunWorld& world, const TrainHooks& hooks) {
  TRIREME_CHECK_EQ(world.ranks(), run.config.layout.world());
  TRIREME_CHECK(world.backend() == run.plan.inputs.backend, "the plan is of another backend than {}", world.text());
  const std::vector<int> ranks = world.own_ranks();
  const std::unique_ptr<Reporter> silent = make_silent_reporter(ranks);
  TrainHooks own_hooks = hooks;
  if (own_hooks.reporter == nullptr) own_hooks.reporter = silent.get();
  std::optional<Run> own;
  try {
    check_run(env, run);
    check_address_space(env, run, ranks);
    own.emplace(env, log, run, world, own_hooks);
  } catch (const std::exception& error) {
    for (int rank : ranks) tell_failure(*own_hooks.reporter, rank, error);
    throw;
  }
  return own->train();
}

}  // namespace trireme::train
