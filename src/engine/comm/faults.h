#pragma once

// Planned faults and a simulated link: a decorator of any communicator, for drills and tests. What is planned happens
// at the same call in every run.
//
// The link. Each axis has one, with a direction out and one in. A transfer occupies its direction for bytes / rate;
// transfers of a direction follow one another; the latency comes on top and overlaps with the next transfer. Thus an
// operation is done no earlier than
//   sends and collectives   max(posting, link out free) + latency + bytes that this rank sends / rate
//   receives                max(arrival, link in free) + latency + bytes received / rate
// where arrival is when the wrapped receive has its data. Bytes are those of the default algorithms (sent_elements());
// under a communicator of another algorithm this one sees its messages instead. Posting is never delayed: done() says
// no and wait() sleeps, moving other operations on, until the operation is due; completed_at() is then.

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "engine/comm/call.h"
#include "engine/comm/communicator.h"

namespace trireme::comm {

struct SimulatedLink {
  Seconds latency;
  double bytes_per_s = 0;  // 0: unlimited
};

struct DelayFault {
  Seconds by;  // the operation is done later by this
};
struct FailFault {
  std::string message;  // the call throws Error(kRankLost), "injected: " before it
};
struct HangFault {
  Seconds limit;  // the call posts nothing and blocks, until released or for this long; then Error(kHang)
};
struct ExitFault {
  int code = 1;  // the process ends at the call, as in a crash
};
struct FlipBitFault {
  std::int64_t bit = 0;  // of the buffer when the operation is complete, modulo its length
};
using FaultAction = std::variant<DelayFault, FailFault, HangFault, ExitFault, FlipBitFault>;

struct PlannedFault {
  std::string axis;
  Operation operation = Operation::kAllReduce;
  std::int64_t call = 1;  // which call of this operation on this axis, over all communicators of the rank, from 1
  FaultAction action;
};

struct FaultPlan {
  SimulatedLink link = {};
  std::vector<PlannedFault> faults = {};
};

// Times and rates that are numbers and not negative, calls from 1, bits of data that the operation writes.
Status check_fault_plan(const FaultPlan& plan);

// What one rank has done and is to suffer, shared by its communicators. That rank's thread only, but for release().
class FaultState {
 public:
  // The plan has passed check_fault_plan() (InternalError).
  explicit FaultState(FaultPlan plan);

  // Ends hangs, now and later. Any thread.
  void release();

  // --- For communicators.
  // Counts the call; what is planned for it.
  std::vector<FaultAction> next(const std::string& axis, Operation operation);
  enum class Direction { kOut, kIn };
  // When a transfer that can begin at `ready` is through.
  Clock::time_point transfer(const std::string& axis, Direction direction, Clock::time_point ready, Bytes bytes);
  // True if released, false if the limit has passed.
  bool hang(Seconds limit);

 private:
  const FaultPlan plan_;
  std::map<std::pair<std::string, Operation>, std::int64_t> calls_;
  std::map<std::pair<std::string, Direction>, Clock::time_point> link_free_;
  std::mutex mutex_;  // guards released_
  std::condition_variable changed_;
  bool released_ = false;
};

std::unique_ptr<Communicator> make_faulty_communicator(std::unique_ptr<Communicator> inner,
                                                       std::shared_ptr<FaultState> state);

}  // namespace trireme::comm
