#pragma once

// The operations of one algorithm communicator, one after the other: sums as phases, and operations of the wrapped
// communicator that were called behind a sum and wait for their turn. Shared by the communicator and its requests.

#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/comm/algorithm.h"
#include "engine/comm/algorithm_phases.h"
#include "engine/comm/call.h"
#include "engine/comm/decorator.h"

namespace trireme::comm {

class QueuedOperation {
 public:
  virtual ~QueuedOperation() = default;
  virtual bool advance() = 0;          // whether anything has moved
  virtual bool over() const = 0;       // it has ended well, and the next may start
  virtual void wait_for_oldest() = 0;  // blocks until something can move; after an advance() that moved nothing
  virtual void abandon() = 0;          // lets its messages go: nobody touches its data any more; never over
  virtual std::string text() const = 0;
};

class OperationQueue {
 public:
  // staging outlives the operations, whose messages may be under way.
  OperationQueue(std::shared_ptr<Communicator> inner, std::span<std::byte> staging)
      : inner_(std::move(inner)), staging_(staging) {}

  Communicator& inner() { return *inner_; }
  bool empty() const { return operations_.empty(); }
  // Queues it and moves what can be moved.
  void add(std::shared_ptr<QueuedOperation> operation);
  bool advance();
  // Until the operation is over.
  void wait(const QueuedOperation& operation);
  void wait_for_all();
  // Throws if an operation has failed before.
  void check_alive(const std::string& operation) const;
  // Of one operation at a time. CHECK: there is so much.
  std::span<std::byte> staging(Bytes bytes);

 private:
  template <class Body>
  bool guarded(const QueuedOperation& operation, Body&& body);
  void die(Death death);

  std::shared_ptr<Communicator> inner_;
  const std::span<std::byte> staging_;
  std::unique_ptr<const Death> death_;
  std::deque<std::shared_ptr<QueuedOperation>> operations_;
};

// Phases that are made when the operation's turn has come.
using MakePhases = std::function<std::vector<std::unique_ptr<Phase>>(const PhaseContext&)>;

// A sum. algorithm: for messages.
std::unique_ptr<Request> queue_sum(const std::shared_ptr<OperationQueue>& queue, const Posting& posting, Bytes staging,
                                   const SegmentOptions& options, Algorithm algorithm, MakePhases make_phases);
// An operation of the wrapped communicator.
std::unique_ptr<Request> queue_other(const std::shared_ptr<OperationQueue>& queue, const Posting& posting);

}  // namespace trireme::comm
