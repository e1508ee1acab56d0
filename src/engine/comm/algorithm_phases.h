#pragma once

// Parts that the sums of algorithm.h are made of: one rank's side of an exchange over sends and receives, as a state
// machine. advance() posts what may be posted, finishes what has moved, and never waits.
//
// Buffers move in segments. Each side posts the messages of a phase in one order, the same between any two ranks, so
// that they meet; messages under way are numbered in it. The message with the smallest number of all that are under way
// anywhere can always end, since it waits for nothing later: that is why a rank that has nothing to do may block on the
// oldest of its own.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "base/collective_bytes.h"
#include "engine/comm/decorator.h"

namespace trireme::comm {

// What a phase works on. All outlive it.
struct PhaseContext {
  Communicator& inner;
  Stream stream;
  Call call;  // the sum: data, count, element type, reduction
  SegmentOptions options;
  std::span<std::byte> staging;  // staging_bytes() of it

  std::int64_t element() const { return dtype_size(call.dtype); }
  std::int64_t segment_elements() const { return options.segment.count / element(); }
  std::int64_t segments(std::int64_t elements) const { return divide_up(elements, segment_elements()); }
  // Elements of segment `number` of `whole`.
  Share segment(Share whole, std::int64_t number) const;
  std::byte* at(std::int64_t offset) const { return call.data + offset * element(); }
  // One of `slots` equal parts of the staging memory.
  std::byte* slot(std::int64_t number, std::int64_t slots) const;
};

class Phase {
 public:
  explicit Phase(const PhaseContext& context) : context_(context) {}
  virtual ~Phase() = default;
  Phase(const Phase&) = delete;
  Phase& operator=(const Phase&) = delete;

  bool advance();  // whether anything has moved
  bool complete() const { return all_posted() && sends_.empty() && receives_.empty(); }
  // Blocks until the oldest message under way has ended. There is one if advance() has just moved nothing.
  void wait_for_oldest();
  // When the last message or addition so far was done.
  Clock::time_point moved_at() const { return moved_at_; }

 protected:
  struct Message {
    std::int64_t number = 0;    // in the order of the phase
    Share elements;             // of the data
    std::byte* slot = nullptr;  // if it is of staging memory
    bool last = false;          // of a partial sum: nobody is to add to it after this rank
    std::unique_ptr<Request> request = nullptr;
  };

  virtual bool all_posted() const = 0;
  virtual bool post_some() = 0;  // whether any
  virtual void sent(const Message&) {}
  virtual void received(const Message&) {}

  void send(int to, Message message);       // from the slot, or from the data
  void receive(int from, Message message);  // likewise
  // first + second, both at the same elements, into `destination` there.
  void add(const std::byte* first, const std::byte* second, std::byte* destination, Share elements);

  const PhaseContext& context() const { return context_; }
  std::int64_t window() const { return context_.options.window; }
  std::int64_t sends() const { return std::ssize(sends_); }
  std::int64_t receives() const { return std::ssize(receives_); }

 private:
  bool poll(std::deque<Message>& messages, bool sending);

  const PhaseContext context_;
  std::deque<Message> sends_;  // under way, ascending
  std::deque<Message> receives_;
  Clock::time_point moved_at_ = Clock::now();
};

// The whole buffer to each of `members` (indices in the group).
std::unique_ptr<Phase> make_send_phase(const PhaseContext& context, std::vector<int> members);
// The whole buffer from one.
std::unique_ptr<Phase> make_receive_phase(const PhaseContext& context, int member);
// The whole buffers of `members` added to one's own, in the order given.
std::unique_ptr<Phase> make_sum_phase(const PhaseContext& context, std::vector<int> members);
// One's own and the partner's whole buffer become their sum, the one of the lower index first.
std::unique_ptr<Phase> make_exchange_phase(const PhaseContext& context, int partner);

// Members of a ring and one's own place among them. Shares are by place.
struct Ring {
  std::vector<int> members;
  int place = 0;

  int size() const { return static_cast<int>(members.size()); }
  int successor() const { return members[static_cast<std::size_t>((place + 1) % size())]; }
  int predecessor() const { return members[static_cast<std::size_t>((place + size() - 1) % size())]; }
};
// One's own share becomes the sum: those of places p + 1, p + 2, ..., p added in this order. Other data stay.
std::unique_ptr<Phase> make_ring_scatter_phase(const PhaseContext& context, const Ring& ring);
// Every share from its owner.
std::unique_ptr<Phase> make_ring_gather_phase(const PhaseContext& context, const Ring& ring);

}  // namespace trireme::comm
