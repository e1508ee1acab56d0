#include "engine/train/rank_reporter.h"

#include <charconv>
#include <map>
#include <mutex>

#include "base/check.h"
#include "base/log.h"
#include "base/process_exit.h"
#include "telemetry/control_line.h"

namespace trireme::train {
namespace {

using plan::Op;
using telemetry::Phase;

// Rank reporters of a process, by rank.
class RankReporters {
 public:
  explicit RankReporters(const std::vector<int>& ranks, std::span<ProgressCell> cells = {}) {
    TRIREME_CHECK(cells.empty() || cells.size() >= ranks.size(), "{} cells for {} ranks", cells.size(), ranks.size());
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      by_rank_.emplace(ranks[i], std::make_unique<RankReporter>(ranks[i], cells.empty() ? nullptr : &cells[i]));
    }
  }
  RankReporter& at(int rank) {
    const auto found = by_rank_.find(rank);
    TRIREME_CHECK(found != by_rank_.end(), "rank {} is not of this process", rank);
    return *found->second;
  }
  std::vector<telemetry::RankProgress> progress() const {
    std::vector<telemetry::RankProgress> all;
    for (const auto& [rank, reporter] : by_rank_) all.push_back(reporter->progress());
    return all;
  }

 private:
  std::map<int, std::unique_ptr<RankReporter>> by_rank_;
};

class SilentReporter : public Reporter {
 public:
  explicit SilentReporter(const std::vector<int>& ranks) : ranks_(ranks) {}
  RankReporter& rank(int rank) override { return ranks_.at(rank); }
  void send(const telemetry::Message&) override {}
  void set_recorder(int, const telemetry::FlightRecorder*) override {}
  bool stop_requested() const override { return false; }
  void flush() override {}

 private:
  RankReporters ranks_;
};

class LineReporter : public Reporter {
 public:
  LineReporter(Env& env, const SupervisedBy& by, const std::vector<int>& ranks, std::span<ProgressCell> cells)
      : ranks_(ranks, cells) {
    line_ = telemetry::open_control_line({.address = by.address,
                                          .hello = {.secret = by.secret,
                                                    .incarnation = by.incarnation,
                                                    .keeper = false,
                                                    .ranks = ranks,
                                                    .host = env.host_name(),
                                                    .process = env.process_id()},
                                          .take = [this](const telemetry::Message& message) { take(message); },
                                          .regular = [this] { return telemetry::Alive{.ranks = ranks_.progress()}; },
                                          .gone = gone,
                                          .is_stopped = true});
    answers_with_ = line_.get();
  }

  RankReporter& rank(int rank) override { return ranks_.at(rank); }
  void send(const telemetry::Message& message) override { line_->send(message); }
  void set_recorder(int rank, const telemetry::FlightRecorder* recorder) override {
    const std::lock_guard lock(mutex_);
    recorders_[rank] = recorder;
  }
  bool stop_requested() const override { return stop_; }
  void flush() override { line_->flush(1.0); }

 private:
  // Nothing may be done twice: not even a destructor's writes.
  static void gone(const std::string& why) {
    make_stderr_log()->error("the supervisor is gone, and so this process ends at once: {}", why);
    end_process_at_once(static_cast<int>(ExitCode::kRankLost));
  }

  // Below: on the line's thread.
  void take(const telemetry::Message& message) {
    if (std::holds_alternative<telemetry::Kill>(message)) end_process_at_once(static_cast<int>(ExitCode::kRankLost));
    if (std::holds_alternative<telemetry::Stop>(message)) stop_ = true;
    if (std::holds_alternative<telemetry::AskFlightRecords>(message)) tell_flight_records();
  }

  void tell_flight_records() {
    telemetry::ControlLine* line = answers_with_;
    if (line == nullptr) return;  // asked before the line was known here: there is no recorder either
    const std::lock_guard lock(mutex_);
    for (const auto& [rank, recorder] : recorders_) {
      if (recorder != nullptr) line->send(telemetry::FlightRecords{.rank = rank, .records = recorder->records()});
    }
  }

  RankReporters ranks_;
  std::atomic<bool> stop_ = false;
  std::mutex mutex_;  // guards recorders_
  std::map<int, const telemetry::FlightRecorder*> recorders_;
  std::atomic<telemetry::ControlLine*> answers_with_ = nullptr;
  std::unique_ptr<telemetry::ControlLine> line_;  // ends first
};

Error refused(const char* variable, const std::string& value, std::string rule) {
  return Error(Failure{.option = variable, .value = value, .rule = std::move(rule), .nearest = ""});
}

}  // namespace

std::optional<Phase> phase_at(const plan::Instruction& instruction) {
  switch (instruction.op) {
    case Op::kForward:
    case Op::kSendActivation:
    case Op::kReceiveActivation:
    case Op::kEvaluateLoss:
      return Phase::kForward;
    case Op::kRecompute:
    case Op::kBackwardInput:
    case Op::kBackwardWeight:
    case Op::kSendGradient:
    case Op::kReceiveGradient:
      return Phase::kBackward;
    case Op::kReduce:
    case Op::kReduceTensorPartial:
    case Op::kSumTied:
    case Op::kGather:
    case Op::kGatherUpdated:
    case Op::kRefreshTied:
      return Phase::kReduce;
    case Op::kGradientNorm:
    case Op::kUpdate:
      return Phase::kOptimizer;
    case Op::kAllocate:
    case Op::kFree:
    case Op::kAllocateBoundary:
    case Op::kFreeBoundary:
    case Op::kRelease:
    case Op::kOpenGradient:
    case Op::kCloseGradient:
      break;
  }
  return std::nullopt;
}

telemetry::RankProgress progress_of(const ProgressCell& cell, int rank) {
  return {.rank = rank,
          .step = cell.step.load(std::memory_order_relaxed),
          .phase = static_cast<Phase>(cell.phase.load(std::memory_order_relaxed)),
          .micro_batch = cell.micro_batch.load(std::memory_order_relaxed),
          .advances = cell.advances.load(std::memory_order_relaxed)};
}

RankReporter::RankReporter(int rank, ProgressCell* cell) : rank_(rank), cell_(cell != nullptr ? *cell : own_) {
  cell_.micro_batch.store(-1, std::memory_order_relaxed);
}

void RankReporter::at(Phase phase, int micro_batch) {
  cell_.phase.store(static_cast<int>(phase), std::memory_order_relaxed);
  cell_.micro_batch.store(micro_batch, std::memory_order_relaxed);
  advance();
}

void RankReporter::at(const plan::Instruction& instruction) {
  const auto now = static_cast<Phase>(cell_.phase.load(std::memory_order_relaxed));
  at(now == Phase::kValidation ? now : phase_at(instruction).value_or(now), instruction.micro_batch);
}

void RankReporter::step(std::int64_t step) { cell_.step.store(step, std::memory_order_relaxed); }

// One thread writes: no need to add atomically.
void RankReporter::advance() {
  cell_.advances.store(cell_.advances.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

std::unique_ptr<Reporter> make_silent_reporter(const std::vector<int>& ranks) {
  return std::make_unique<SilentReporter>(ranks);
}

std::optional<SupervisedBy> supervised_by(
    const std::function<std::optional<std::string>(const std::string&)>& variable) {
  constexpr const char* kAddress = "TRIREME_CONTROL";
  constexpr const char* kSecret = "TRIREME_SECRET";
  constexpr const char* kIncarnation = "TRIREME_INCARNATION";
  const std::optional<std::string> address = variable(kAddress), secret = variable(kSecret),
                                   incarnation = variable(kIncarnation);
  if (!address && !secret && !incarnation) return std::nullopt;
  for (const auto& [name, value] :
       {std::pair{kAddress, &address}, std::pair{kSecret, &secret}, std::pair{kIncarnation, &incarnation}}) {
    if (!*value || (*value)->empty()) {
      throw refused(name, "", "is not set, and others of a supervisor are: only a supervisor sets them");
    }
  }
  SupervisedBy by{.address = *address, .secret = *secret};
  const char* end = incarnation->data() + incarnation->size();
  const auto [stop, error] = std::from_chars(incarnation->data(), end, by.incarnation);
  if (error != std::errc() || stop != end || by.incarnation < 1) {
    throw refused(kIncarnation, *incarnation, "is a number from 1");
  }
  return by;
}

std::unique_ptr<Reporter> make_reporter(Env& env, const SupervisedBy& by, const std::vector<int>& ranks,
                                        std::span<ProgressCell> cells) {
  return std::make_unique<LineReporter>(env, by, ranks, cells);
}

}  // namespace trireme::train
