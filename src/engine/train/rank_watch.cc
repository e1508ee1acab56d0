#include "engine/train/rank_watch.h"

#include <fmt/format.h>

#include "base/exception_code.h"
#include "base/limit_failure.h"
#include "telemetry/rank_log.h"

namespace trireme::train {
namespace {

using telemetry::Phase;

bool bears_loss(const plan::Layout& layout, int rank) { return plan::coordinates_of(layout, rank).pp == layout.pp - 1; }

}  // namespace

void tell_failure(Reporter& reporter, int rank, const std::exception& error) {
  const std::string limit = limit_failure(error);
  std::string message = limit.empty() ? error.what() : limit;
  const auto* known = dynamic_cast<const Error*>(&error);
  if (known != nullptr && !known->hint().empty()) message += "; " + known->hint();
  reporter.send(telemetry::Alive{.ranks = {reporter.rank(rank).progress()}});  // where it failed, not where it was last
  reporter.send(telemetry::RankEnded{.rank = rank, .code = static_cast<int>(code_of(error)), .message = message});
  reporter.flush();  // what comes next may end the process
}

RankWatch::RankWatch(Env& env, Env& at_once, Log& log, const ResolvedRun& run, const TrainHooks& hooks, int rank)
    : at_once_(at_once),
      log_(log),
      run_(run),
      reporter_(*hooks.reporter),
      incarnation_(hooks.incarnation),
      rank_(rank),
      own_(reporter_.rank(rank)),
      file_(at_once),
      both_(make_log_of({&log, &file_})),
      faults_(env, *both_, hooks.faults,
              {.rank = rank,
               .out = run.config.out,
               .supervised = hooks.incarnation.has_value(),
               .bears_loss = bears_loss(run.config.layout, rank)}) {}

void RankWatch::open_log() {
  const std::string path = telemetry::rank_log_of(run_.config.out, rank_);
  try {
    at_once_.make_directories(directory_name(path));
    file_.open(path);
    file_.info("rank {} of {} on {}, process {}{}", rank_, run_.config.layout.world(), at_once_.host_name(),
               at_once_.process_id(), incarnation_ ? fmt::format(", incarnation {}", *incarnation_) : "");
  } catch (const Error& error) {  // the run can do without
    log_.warning("rank {} has no log file: {}", rank_, error.what());
  }
}

void RankWatch::at(Phase phase, std::int64_t step) {
  own_.at(phase);
  if (!faults_.none()) faults_.at(phase, step);
}

void RankWatch::begins(std::int64_t step) {
  own_.step(step);
  at(Phase::kForward, step);
}

void RankWatch::step_done(std::int64_t step, const RankTrainer& rank) {
  own_.at(Phase::kIdle);
  const RankTrainer::StepTimes times = rank.last_step_times();
  const Seconds slept = faults_.take_slept();  // no thread computes while it sleeps
  const double own = times.own.count + (rank.shares_cores() ? slept.count : 0);
  reporter_.send(telemetry::StepDone{.rank = rank_, .step = step, .step_s = times.all.count, .compute_s = own});
}

RankHooks RankWatch::trainer_hooks() {
  RankHooks hooks;
  hooks.executor = [this](int, parallel::Executor& executor) {
    if (faults_.none()) {
      executor.before = [this](const plan::Instruction& instruction) { own_.at(instruction); };
      return;
    }
    executor.before = [this](const plan::Instruction& instruction) {
      own_.at(instruction);
      faults_.before(instruction);
    };
    if (faults_.slows()) {
      executor.observer = [this](const plan::Instruction& instruction) { faults_.after(instruction); };
    }
    if (faults_.poisons()) {
      executor.fault = [this](nn::UnitContext&, double& loss_scale) { faults_.spoil(loss_scale); };
    }
  };
  return hooks;
}

std::function<void(std::int64_t)> RankWatch::written() {
  if (faults_.none()) return nullptr;
  return [this](std::int64_t step) { faults_.writing(step); };
}

RankWatch::Recorded::Recorded(RankWatch& watch, parallel::CommunicationRecords& records) : watch_(watch) {
  watch.reporter_.set_recorder(watch.rank_, &records.last_operations);
  watch.faults_.set_times(&records.times);
}

RankWatch::Recorded::~Recorded() {
  watch_.reporter_.set_recorder(watch_.rank_, nullptr);
  watch_.faults_.set_times(nullptr);
}

void RankWatch::failed(const std::exception& error) {
  file_.error("{}", error.what());
  tell_failure(reporter_, rank_, error);
}

}  // namespace trireme::train
