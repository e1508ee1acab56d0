#pragma once

// A group of ranks that exchange data. One narrow interface; backends: self (one rank), threads (ranks are threads of
// one process), MPI (ranks are processes). Ranks of a group call the same operations in the same order.
//
// Rules
//  * Sums are over ranks in ascending order, added in the element type (float32 and float64; BF16 and F16 in float32;
//    integers exactly) and rounded once, whatever the algorithm of a backend's default.
//  * Operations start when called and are complete when their Request is waited for. Data must stay in place till then.
//    Every wait has a deadline; past it, Error(kHang) names operation, group and peers.
//  * After an error the communicator is dead: every later call throws, saying why.
//  * Only the owning rank's thread calls it.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/stream.h"
#include "base/units.h"

namespace trireme::comm {

enum class Reduction { kSum, kMax };

// The system's, not Env's: deadlines of ranks that are threads are waits of the system.
using Clock = std::chrono::steady_clock;
inline Seconds on_the_clock(Clock::time_point when) {
  return {std::chrono::duration<double>(when.time_since_epoch()).count()};
}

// A running operation. Destroying it waits.
class Request {
 public:
  virtual ~Request() = default;
  virtual bool done() = 0;  // makes progress
  virtual void wait() = 0;
  // When the last of its data arrived or left; asked for once it is done. It may lie before this rank found out.
  virtual Clock::time_point completed_at() const = 0;
};

struct GroupName {
  std::string axis;        // "tensor", "pipeline", "data": the label of counters and messages
  std::vector<int> ranks;  // world ranks, by index in the group
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int index() const = 0;  // of this rank in the group
  virtual int size() const = 0;
  virtual const GroupName& name() const = 0;

  // `count` elements in place.
  virtual std::unique_ptr<Request> all_reduce(Stream stream, std::byte* data, std::int64_t count, DType dtype,
                                              Reduction reduction) = 0;
  // Rank r receives the sum of elements [r n / N, (r + 1) n / N) of everybody's `data` there, in place in its own.
  virtual std::unique_ptr<Request> reduce_scatter(Stream stream, std::byte* data, std::int64_t count, DType dtype) = 0;
  // The reverse: each rank's share of its own `data` is copied to the same place of all others'.
  virtual std::unique_ptr<Request> all_gather(Stream stream, std::byte* data, std::int64_t count, DType dtype) = 0;
  virtual std::unique_ptr<Request> broadcast(Stream stream, std::byte* data, std::int64_t count, DType dtype,
                                             int root) = 0;
  virtual std::unique_ptr<Request> send(Stream stream, const std::byte* data, std::int64_t count, DType dtype,
                                        int to) = 0;
  virtual std::unique_ptr<Request> receive(Stream stream, std::byte* data, std::int64_t count, DType dtype,
                                           int from) = 0;
  virtual void barrier() = 0;
  // Moves running operations on; called between layers.
  virtual void progress() = 0;
};

// What a communicator is given when it is made.
struct GroupOptions {
  // Where a backend that stages sums does so; it has no memory of its own for that. As much as plan/staging.h says for
  // the largest reduction, aligned to kAllocationAlignment; a reduction that needs more is an InternalError, so a group
  // that reduces nothing may have none. It outlives the communicator and its requests. Threads read it never.
  std::span<std::byte> staging = {};
  // Sums by the communication library's own collectives. Only of a backend that has them (InternalError).
  bool library_sums = false;
};

// Makes a rank's member of a group. All ranks of the group ask for it, and two ranks for the groups that they share in
// the same order.
using CommunicatorFactory =
    std::function<std::unique_ptr<Communicator>(const GroupName& name, const GroupOptions& options)>;

// The share of rank `index` of `size` in `count` elements.
struct Share {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};
inline Share share_of(std::int64_t count, int index, int size) {
  return {count * index / size, count * (index + 1) / size};
}

// A group of one: every operation is complete at once and moves nothing.
std::unique_ptr<Communicator> make_self_communicator(std::string axis, int world_rank);

}  // namespace trireme::comm
