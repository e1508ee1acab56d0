#include "engine/comm/faults.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>

#include <fmt/format.h>

#include "base/check.h"
#include "base/collective_bytes.h"
#include "base/env.h"
#include "base/process_exit.h"
#include "engine/comm/decorator.h"

namespace trireme::comm {
namespace {

constexpr Seconds kNap{0.0002};  // between two looks at the other operations while one is not due

template <class... Handlers>
struct Overloaded : Handlers... {
  using Handlers::operator()...;
};

constexpr Seconds kLongest{1e7};  // of any delay: the clock does not overflow

Clock::duration duration_of(Seconds time) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(std::min(time, kLongest).count));
}

Bytes bytes_out(const Communicator& communicator, const Posting& posting) {
  const Call& call = posting.call;
  const auto sent = [&](CollectiveKind kind) {
    return sent_elements(ReduceAlgorithm::kOrdered, kind, call.count, communicator.index(), communicator.size());
  };
  std::int64_t elements = 0;
  switch (call.operation) {
    case Operation::kAllReduce:
      elements = sent(CollectiveKind::kAllReduce);
      break;
    case Operation::kReduceScatter:
      elements = sent(CollectiveKind::kReduceScatter);
      break;
    case Operation::kAllGather:
      elements = sent(CollectiveKind::kAllGather);
      break;
    case Operation::kBroadcast:
      elements = communicator.index() == call.root ? call.count * (communicator.size() - 1) : 0;
      break;
    case Operation::kSend:
      elements = call.count;
      break;
    case Operation::kReceive:
    case Operation::kBarrier:
      break;
  }
  return Bytes{dtype_size(call.dtype)} * elements;
}

// What happens to an operation after its posting.
struct Suffering {
  Clock::time_point due = {};       // done no earlier
  Clock::duration delay{};          // of a receive, after its transfer
  std::optional<std::int64_t> bit;  // that flips
};

class FaultyRequest : public Request {
 public:
  FaultyRequest(std::shared_ptr<FaultState> state, std::shared_ptr<Communicator> communicator, const Posting& posting,
                Suffering suffering, std::unique_ptr<Request> inner)
      : state_(std::move(state)),
        communicator_(std::move(communicator)),
        posting_(posting),
        suffering_(suffering),
        inner_(std::move(inner)) {}
  ~FaultyRequest() override {
    try {
      if (!failed_) wait();
    } catch (const std::exception&) {
      // The communicator is dead: the next call says so.
    }
  }

  bool done() override {
    if (finished_) return true;
    if (!inner_->done()) return false;
    settle();
    if (Clock::now() < suffering_.due) return false;
    finish();
    return true;
  }

  void wait() override {
    if (finished_) return;
    failed_ = true;  // unless this wait gets through
    inner_->wait();
    settle();
    for (Clock::time_point now = Clock::now(); now < suffering_.due; now = Clock::now()) {
      communicator_->progress();
      const Seconds left{std::chrono::duration<double>(suffering_.due - now).count()};
      posix_env().sleep(std::min(left, kNap));
    }
    failed_ = false;
    finish();
  }

  Clock::time_point completed_at() const override { return suffering_.due; }

 private:
  // Once the data are here: when this operation is due.
  void settle() {
    if (std::exchange(settled_, true)) return;
    const Clock::time_point arrival = inner_->completed_at();
    Clock::time_point& due = suffering_.due;
    due = std::max(due, arrival);
    if (posting_.call.operation != Operation::kReceive) return;
    due = state_->transfer(communicator_->name().axis, FaultState::Direction::kIn, arrival, posting_.bytes()) +
          suffering_.delay;
  }

  void finish() {
    finished_ = true;
    const std::int64_t bits = 8 * posting_.bytes().count;
    if (!suffering_.bit || bits == 0) return;
    const std::int64_t bit = *suffering_.bit % bits;
    posting_.call.data[bit / 8] ^= std::byte{1} << (bit % 8);
  }

  std::shared_ptr<FaultState> state_;
  std::shared_ptr<Communicator> communicator_;
  const Posting posting_;
  Suffering suffering_;
  bool settled_ = false;
  bool finished_ = false;
  bool failed_ = false;
  std::unique_ptr<Request> inner_;
};

class FaultyCommunicator : public Decorator {
 public:
  FaultyCommunicator(std::unique_ptr<Communicator> inner, std::shared_ptr<FaultState> state)
      : Decorator(std::move(inner)), state_(std::move(state)) {}

  void barrier() override {
    const Suffering suffering = suffer({});
    inner().barrier();
    const Seconds left{std::chrono::duration<double>(suffering.due - Clock::now()).count()};
    if (left.count > 0) posix_env().sleep(left);
  }

 protected:
  std::unique_ptr<Request> run(const Posting& posting) override {
    const Suffering suffering = suffer(posting);
    return std::make_unique<FaultyRequest>(state_, shared_inner(), posting, suffering, post(inner(), posting));
  }

 private:
  Suffering suffer(const Posting& posting) {
    const Operation operation = posting.call.operation;
    const std::string& axis = name().axis;
    const std::string text = fmt::format("{} over {}", posting.call.text(), axis);
    Suffering suffering;
    const auto fail = [&](const FailFault& fault) {
      throw Error(ExitCode::kRankLost, "comm", text, "injected: " + fault.message);
    };
    const auto hang = [&](const HangFault& fault) {
      const bool released = state_->hang(fault.limit);
      throw Error(ExitCode::kHang, "comm", text,
                  released ? "injected hang: released"
                           : fmt::format("injected hang: {} have passed", format_seconds(fault.limit)));
    };
    for (const FaultAction& action : state_->next(axis, operation)) {
      std::visit(Overloaded{[&](const DelayFault& fault) { suffering.delay += duration_of(fault.by); },  //
                            fail, hang,                                                                  //
                            [](const ExitFault& fault) { end_process_at_once(fault.code); },
                            [&](const FlipBitFault& fault) { suffering.bit = fault.bit; }},
                 action);
    }
    if (operation == Operation::kReceive) return suffering;
    suffering.due =
        state_->transfer(axis, FaultState::Direction::kOut, Clock::now(), bytes_out(*this, posting)) + suffering.delay;
    return suffering;
  }

  std::shared_ptr<FaultState> state_;
};

bool is_amount(double value) { return std::isfinite(value) && value >= 0; }

Failure refused(std::size_t fault, const std::string& part, const std::string& value, const std::string& rule,
                const std::string& nearest) {
  return {.option = fmt::format("faults[{}].{}", fault, part), .value = value, .rule = rule, .nearest = nearest};
}

Status check_action(std::size_t number, const PlannedFault& fault) {
  constexpr std::string_view kTime = "a time is a number of seconds, not negative";
  const auto check_time = [&](const std::string& part, Seconds time) -> Status {
    if (is_amount(time.count)) return ok_status();
    return refused(number, part, fmt::format("{}", time.count), std::string(kTime), "0");
  };
  return std::visit(
      Overloaded{[&](const DelayFault& delay) { return check_time("by", delay.by); },
                 [&](const HangFault& hang) { return check_time("limit", hang.limit); },
                 [&](const FlipBitFault& flip) -> Status {
                   if (flip.bit < 0)
                     return refused(number, "bit", fmt::format("{}", flip.bit), "bits count from 0", "0");
                   if (fault.operation == Operation::kSend || fault.operation == Operation::kBarrier) {
                     return refused(number, "operation", Call{.operation = fault.operation}.text(),
                                    "a bit flips in data that the operation writes",
                                    "all-reduce, reduce-scatter, all-gather, broadcast, receive");
                   }
                   return ok_status();
                 },
                 [](const FailFault&) { return ok_status(); }, [](const ExitFault&) { return ok_status(); }},
      fault.action);
}

}  // namespace

Status check_fault_plan(const FaultPlan& plan) {
  const auto check_link = [](const char* option, double value) -> Status {
    if (is_amount(value)) return ok_status();
    return Failure{.option = option,
                   .value = fmt::format("{}", value),
                   .rule = "the link's figures are numbers, not negative",
                   .nearest = "0"};
  };
  if (Status latency = check_link("link.latency", plan.link.latency.count); !latency) return latency;
  if (Status rate = check_link("link.bytes_per_s", plan.link.bytes_per_s); !rate) return rate;
  for (std::size_t i = 0; i < plan.faults.size(); ++i) {
    const PlannedFault& fault = plan.faults[i];
    if (fault.call < 1) return refused(i, "call", fmt::format("{}", fault.call), "calls count from 1", "1");
    if (Status action = check_action(i, fault); !action) return action;
  }
  return ok_status();
}

FaultState::FaultState(FaultPlan plan) : plan_(std::move(plan)) {
  const Status status = check_fault_plan(plan_);
  TRIREME_CHECK(status.ok(), "{}", status.failure().sentence());
}

void FaultState::release() {
  const std::lock_guard lock(mutex_);
  released_ = true;
  changed_.notify_all();
}

std::vector<FaultAction> FaultState::next(const std::string& axis, Operation operation) {
  const std::int64_t call = ++calls_[{axis, operation}];
  std::vector<FaultAction> actions;
  for (const PlannedFault& fault : plan_.faults) {
    if (fault.axis == axis && fault.operation == operation && fault.call == call) actions.push_back(fault.action);
  }
  return actions;
}

Clock::time_point FaultState::transfer(const std::string& axis, Direction direction, Clock::time_point ready,
                                       Bytes bytes) {
  Clock::time_point& free = link_free_[{axis, direction}];
  free = std::max(free, ready);
  if (plan_.link.bytes_per_s > 0) {
    free += duration_of({static_cast<double>(bytes.count) / plan_.link.bytes_per_s});
  }
  return free + duration_of(plan_.link.latency);
}

bool FaultState::hang(Seconds limit) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, duration_of(limit), [&] { return released_; });
}

std::unique_ptr<Communicator> make_faulty_communicator(std::unique_ptr<Communicator> inner,
                                                       std::shared_ptr<FaultState> state) {
  return std::make_unique<FaultyCommunicator>(std::move(inner), std::move(state));
}

}  // namespace trireme::comm
