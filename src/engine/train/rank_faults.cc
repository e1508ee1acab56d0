#include "engine/train/rank_faults.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <limits>
#include <mutex>

#include <fmt/format.h>

#include "base/process_exit.h"
#include "checkpoint/store.h"
#include "engine/train/full_disk_env.h"
#include "engine/train/rank_reporter.h"
#include "engine/train/run_directory.h"

namespace trireme::train {
namespace {

using plan::Op;
using telemetry::Phase;

constexpr std::string_view kMark = ".fault-";
std::string mark_of(const std::string& out, std::size_t number, std::int64_t time) {
  return join_path(out, fmt::format("{}{}-{}", kMark, number, time));
}

// Work of the rank itself.
bool is_compute(Op op) {
  switch (op) {
    case Op::kForward:
    case Op::kRecompute:
    case Op::kBackwardInput:
    case Op::kBackwardWeight:
    case Op::kEvaluateLoss:
    case Op::kGradientNorm:
    case Op::kUpdate:
      return true;
    default:
      return false;
  }
}

double seconds_since(comm::Clock::time_point moment) {
  return std::chrono::duration<double>(comm::Clock::now() - moment).count();
}

[[noreturn]] void wait_for_ever() {
  std::mutex mutex;
  std::unique_lock lock(mutex);
  std::condition_variable never;
  for (;;) never.wait_for(lock, std::chrono::hours(1));
}

// What ends or stops the process by itself, and may be done on any thread.
bool of_process(FaultKind kind) {
  return kind != FaultKind::kHang && kind != FaultKind::kSlow && kind != FaultKind::kNan &&
         kind != FaultKind::kDiskFull;
}

bool of_step(const PlannedFault& fault, const plan::Instruction& instruction) {
  if (fault.phase && phase_at(instruction) != fault.phase) return false;
  return fault.micro_batch < 0 || instruction.micro_batch == fault.micro_batch;
}

}  // namespace

void remove_fault_marks(Env& env, const std::string& out) {
  if (!env.exists(out)) return;
  for (const std::string& name : env.list_directory(out)) {
    if (name.starts_with(kMark)) env.remove_file(join_path(out, name));
  }
}

RankFaults::RankFaults(Env& env, Log& log, const std::vector<PlannedFault>& faults, const Place& place)
    : env_(env), log_(log), place_(place) {
  bool fills_disk = false;
  for (std::size_t i = 0; i < faults.size(); ++i) {
    if (faults[i].rank != place.rank) continue;
    faults_.push_back({.fault = faults[i], .number = i});
    fills_disk = fills_disk || faults[i].kind == FaultKind::kDiskFull;
  }
  if (!fills_disk) return;
  disk_ = make_full_disk_env(env, [this](const std::string& path) {
    const std::int64_t step = full_step_;
    if (step < 0) return false;
    return path.starts_with(join_path(checkpoints_of(place_.out), checkpoint::name_of_step(step) + "."));
  });
}

RankFaults::~RankFaults() = default;

Env& RankFaults::save_env() { return disk_ ? *disk_ : env_; }

bool RankFaults::slows() const {
  return std::ranges::any_of(faults_, [](const Own& own) { return own.fault.kind == FaultKind::kSlow; });
}
bool RankFaults::poisons() const {
  return std::ranges::any_of(faults_, [](const Own& own) { return own.fault.kind == FaultKind::kNan; });
}

// Whether it happens in this start of the run. The first that asks has come by it: that is counted before it happens.
bool RankFaults::due(Own& own) {
  if (own.decided) return own.happens;
  own.decided = own.happens = true;
  if (place_.supervised && own.fault.times > 0) {
    std::int64_t time = 1;
    while (time <= own.fault.times && env_.exists(mark_of(place_.out, own.number, time))) ++time;
    own.happens = time <= own.fault.times;
    if (own.happens) {
      env_.make_directories(place_.out);
      env_.write_file_atomically(mark_of(place_.out, own.number, time), "");
    }
  }
  if (own.happens) log_.warning("planned fault: {}", to_text(own.fault));
  return own.happens;
}

void RankFaults::at(Phase phase, std::int64_t step) {
  validates_ = phase == Phase::kValidation;
  if (phase == Phase::kForward) {
    step_ = step;
    poisoned_ = false;
  }
  const bool before_steps = phase == Phase::kStart || phase == Phase::kLoad;
  for (Own& own : faults_) {
    const PlannedFault& fault = own.fault;
    const bool here = fault.kind == FaultKind::kDiskFull ? phase == Phase::kSave : fault.phase == phase;
    if (!here || phase == Phase::kForward || (!before_steps && fault.step != step)) continue;
    if (phase == Phase::kSave && of_process(fault.kind)) continue;  // writing()
    if (due(own)) happen(own);
  }
}

void RankFaults::before(const plan::Instruction& instruction) {
  factor_ = 1;
  if (validates_) return;
  for (Own& own : faults_) {
    const PlannedFault& fault = own.fault;
    if (fault.phase == Phase::kSave || fault.kind == FaultKind::kDiskFull) continue;
    const bool slow = fault.kind == FaultKind::kSlow;
    if (slow ? step_ < fault.step : step_ != fault.step || own.decided) continue;
    if (!of_step(fault, instruction) || !due(own)) continue;
    slow ? void(factor_ *= fault.factor) : happen(own);
  }
  if (factor_ == 1) return;
  blocked_ = blocked();
  begun_ = comm::Clock::now();
}

void RankFaults::after(const plan::Instruction& instruction) {
  if (factor_ == 1 || !is_compute(instruction.op)) return;
  const double took = seconds_since(begun_) - (blocked().count - blocked_.count);
  owed_.count += (factor_ - 1) * std::max(0.0, took);
  constexpr double kWorthIt = 1e-3;  // a sleep takes some 50 us longer than asked for
  if (owed_.count < kWorthIt) return;
  const comm::Clock::time_point before = comm::Clock::now();
  env_.sleep(owed_);
  const double slept = seconds_since(before);
  slept_.count += slept;
  owed_.count -= std::max(owed_.count, slept);
}

Seconds RankFaults::take_slept() { return std::exchange(slept_, {}); }

void RankFaults::spoil(double& loss_scale) const {
  if (poisoned_ && !validates_) loss_scale = std::numeric_limits<double>::quiet_NaN();
}

void RankFaults::writing(std::int64_t step) {
  for (Own& own : faults_) {
    if (own.fault.phase != Phase::kSave || own.fault.step != step || !of_process(own.fault.kind)) continue;
    if (due(own)) happen(own);
  }
}

void RankFaults::happen(Own& own) {
  switch (own.fault.kind) {
    case FaultKind::kKill:
      std::raise(SIGKILL);
      break;
    case FaultKind::kSegv:
      std::signal(SIGSEGV, SIG_DFL);
      std::raise(SIGSEGV);
      break;
    case FaultKind::kStop:
      std::raise(SIGSTOP);
      break;
    case FaultKind::kExit:
      end_process_at_once(3);
    case FaultKind::kHang:
      wait_for_ever();
    case FaultKind::kNan:
      if (!place_.bears_loss) {
        throw Error(Failure{.option = "inject",
                            .value = to_text(own.fault),
                            .rule = "the rank has no loss that could be a nan",
                            .nearest = "a rank of the last stage"});
      }
      poisoned_ = true;
      break;
    case FaultKind::kDiskFull:
      full_step_ = own.fault.step;
      break;
    case FaultKind::kFlip:
      flip_and_end();
      break;
    case FaultKind::kSlow:  // before() and after()
      break;
  }
}

void RankFaults::flip_and_end() {
  const checkpoint::Store store(env_, checkpoints_of(place_.out));
  const std::vector<std::int64_t> steps = store.steps();
  if (steps.empty()) {
    throw Error(ExitCode::kUsage, "train", "inject flip", "there is no checkpoint yet that could be damaged",
                "a later step");
  }
  const std::string path = join_path(store.path_of(steps.back()), checkpoint::shard_name(0));
  std::string content = env_.read_file(path);
  content[content.size() / 2] = static_cast<char>(content[content.size() / 2] ^ 1);
  const std::unique_ptr<Writer> file = env_.create_file(path);
  file->write_text(content);
  file->sync();
  file->close();
  std::raise(SIGKILL);
}

}  // namespace trireme::train
