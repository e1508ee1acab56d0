#include "engine/comm/algorithm_queue.h"

#include <algorithm>
#include <exception>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/error.h"

namespace trireme::comm {
namespace {

// A waiting rank looks this often again before it blocks: a peer on another core needs no longer for a small message.
constexpr int kLooks = 16;

class QueuedSum : public QueuedOperation {
 public:
  QueuedSum(OperationQueue& queue, const Posting& posting, Bytes staging, const SegmentOptions& options,
            Algorithm algorithm, MakePhases make_phases)
      : queue_(queue),
        posting_(posting),
        staging_(queue.staging(staging)),
        options_(options),
        algorithm_(algorithm),
        make_phases_(std::move(make_phases)) {}

  bool advance() override {
    if (make_phases_) {
      phases_ =
          std::exchange(make_phases_, nullptr)({queue_.inner(), posting_.stream, posting_.call, options_, staging_});
      std::reverse(phases_.begin(), phases_.end());  // the next one last
    }
    bool moved = false;
    while (!phases_.empty()) {
      moved |= phases_.back()->advance();
      if (!phases_.back()->complete()) return moved;
      completed_at_ = std::max(completed_at_, phases_.back()->moved_at());
      phases_.pop_back();
      moved = true;
    }
    over_ = true;
    return moved;
  }
  bool over() const override { return over_; }
  void wait_for_oldest() override { phases_.back()->wait_for_oldest(); }
  void abandon() override { phases_.clear(); }
  std::string text() const override {
    return fmt::format("{} over {} ({})", posting_.call.text(), queue_.inner().name().axis,
                       reduce_algorithm_name(algorithm_));
  }
  Clock::time_point completed_at() const { return completed_at_; }

 private:
  OperationQueue& queue_;
  const Posting posting_;
  const std::span<std::byte> staging_;
  const SegmentOptions options_;
  const Algorithm algorithm_;
  MakePhases make_phases_;
  std::vector<std::unique_ptr<Phase>> phases_;  // still to do, the next one last
  bool over_ = false;
  Clock::time_point completed_at_ = Clock::now();
};

class QueuedOther : public QueuedOperation {
 public:
  QueuedOther(OperationQueue& queue, const Posting& posting) : queue_(queue), posting_(posting) {}

  bool advance() override {
    if (over()) return false;
    request_ = post(queue_.inner(), posting_);
    return true;
  }
  bool over() const override { return request_ != nullptr; }
  void wait_for_oldest() override {}
  void abandon() override {}
  std::string text() const override {
    return fmt::format("{} over {}", posting_.call.text(), queue_.inner().name().axis);
  }
  Request& request() { return *request_; }

 private:
  OperationQueue& queue_;
  const Posting posting_;
  std::unique_ptr<Request> request_;
};

template <class Operation>
class QueuedRequest : public Request {
 public:
  QueuedRequest(std::shared_ptr<OperationQueue> queue, std::shared_ptr<Operation> operation)
      : queue_(std::move(queue)), operation_(std::move(operation)) {}
  ~QueuedRequest() override {
    try {
      wait();
    } catch (const std::exception&) {
      // The communicator is dead: the next call says so.
    }
  }
  bool done() override {
    if (!operation_->over()) {
      queue_->check_alive(operation_->text());
      queue_->advance();
    }
    if constexpr (std::is_same_v<Operation, QueuedOther>) return operation_->over() && operation_->request().done();
    return operation_->over();
  }
  void wait() override {
    if (!operation_->over()) {
      queue_->check_alive(operation_->text());
      queue_->wait(*operation_);
    }
    if constexpr (std::is_same_v<Operation, QueuedOther>) operation_->request().wait();
  }
  Clock::time_point completed_at() const override {
    if constexpr (std::is_same_v<Operation, QueuedOther>) return operation_->request().completed_at();
    if constexpr (std::is_same_v<Operation, QueuedSum>) return operation_->completed_at();
  }

 private:
  std::shared_ptr<OperationQueue> queue_;  // outlives the operation
  std::shared_ptr<Operation> operation_;
};

template <class Operation>
std::unique_ptr<Request> add(const std::shared_ptr<OperationQueue>& queue, std::shared_ptr<Operation> operation) {
  auto request = std::make_unique<QueuedRequest<Operation>>(queue, operation);
  queue->add(std::move(operation));
  return request;
}

}  // namespace

void OperationQueue::add(std::shared_ptr<QueuedOperation> operation) {
  check_alive(operation->text());
  operations_.push_back(std::move(operation));
  advance();
}

bool OperationQueue::advance() {
  bool moved = false;
  while (!operations_.empty()) {
    const std::shared_ptr<QueuedOperation> first = operations_.front();
    moved |= guarded(*first, [&] { return first->advance(); });
    if (!first->over()) break;
    operations_.pop_front();
  }
  return moved;
}

void OperationQueue::wait(const QueuedOperation& operation) {
  int looks = 0;
  while (!operation.over()) {
    if (advance()) {
      looks = 0;
    } else if (++looks < kLooks) {
      std::this_thread::yield();
    } else {
      const std::shared_ptr<QueuedOperation> first = operations_.front();
      guarded(*first, [&] {
        first->wait_for_oldest();
        return true;
      });
    }
  }
}

void OperationQueue::wait_for_all() {
  while (!operations_.empty()) {
    const std::shared_ptr<QueuedOperation> last = operations_.back();
    wait(*last);
  }
}

void OperationQueue::check_alive(const std::string& operation) const {
  if (death_) death_->throw_dead(operation);
}

// Names the operation that a failed message belongs to.
template <class Body>
bool OperationQueue::guarded(const QueuedOperation& operation, Body&& body) {
  try {
    return body();
  } catch (const Error& error) {
    die({error.code(), operation.text(), error.what()});
    death_->throw_first_error();
  } catch (const std::exception& error) {
    die({ExitCode::kInternal, operation.text(), error.what()});
    throw;
  }
}

void OperationQueue::die(Death death) {
  death_ = std::make_unique<const Death>(std::move(death));
  for (const auto& operation : operations_) operation->abandon();
  operations_.clear();
}

std::span<std::byte> OperationQueue::staging(Bytes bytes) {
  TRIREME_CHECK(bytes.count <= std::ssize(staging_), "a sum stages {} bytes, and the communicator was given {}",
                bytes.count, staging_.size());
  return staging_.first(static_cast<std::size_t>(bytes.count));
}

std::unique_ptr<Request> queue_sum(const std::shared_ptr<OperationQueue>& queue, const Posting& posting, Bytes staging,
                                   const SegmentOptions& options, Algorithm algorithm, MakePhases make_phases) {
  return add(queue, std::make_shared<QueuedSum>(*queue, posting, staging, options, algorithm, std::move(make_phases)));
}

std::unique_ptr<Request> queue_other(const std::shared_ptr<OperationQueue>& queue, const Posting& posting) {
  return add(queue, std::make_shared<QueuedOther>(*queue, posting));
}

}  // namespace trireme::comm
