#include "engine/comm/algorithm_phases.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "engine/comm/reduce.h"

namespace trireme::comm {

Share PhaseContext::segment(Share whole, std::int64_t number) const {
  const std::int64_t begin = whole.begin + number * segment_elements();
  return {begin, std::min(begin + segment_elements(), whole.end)};
}

std::byte* PhaseContext::slot(std::int64_t number, std::int64_t slots) const {
  return staging.data() + number * (std::ssize(staging) / slots);
}

bool Phase::advance() {
  bool moved = poll(receives_, false);
  moved |= poll(sends_, true);
  moved |= post_some();
  return moved;
}

bool Phase::poll(std::deque<Message>& messages, bool sending) {
  bool moved = false;
  while (!messages.empty() && messages.front().request->done()) {
    const Message message = std::move(messages.front());
    messages.pop_front();
    moved_at_ = std::max(moved_at_, message.request->completed_at());
    sending ? sent(message) : received(message);
    moved = true;
  }
  return moved;
}

void Phase::wait_for_oldest() {
  TRIREME_CHECK(!sends_.empty() || !receives_.empty(), "a sum stands still with no message under way");
  const bool sending = receives_.empty() || (!sends_.empty() && sends_.front().number < receives_.front().number);
  (sending ? sends_ : receives_).front().request->wait();
}

void Phase::send(int to, Message message) {
  const std::byte* data = message.slot != nullptr ? message.slot : context_.at(message.elements.begin);
  const std::int64_t count = message.elements.end - message.elements.begin;
  message.request = context_.inner.send(context_.stream, data, count, context_.call.dtype, to);
  sends_.push_back(std::move(message));
}

void Phase::receive(int from, Message message) {
  std::byte* data = message.slot != nullptr ? message.slot : context_.at(message.elements.begin);
  const std::int64_t count = message.elements.end - message.elements.begin;
  message.request = context_.inner.receive(context_.stream, data, count, context_.call.dtype, from);
  receives_.push_back(std::move(message));
}

void Phase::add(const std::byte* first, const std::byte* second, std::byte* destination, Share elements) {
  const std::array<const std::byte*, 2> sources{first, second};
  reduce_in_order(context_.call.dtype, context_.call.reduction, sources, destination,
                  {0, elements.end - elements.begin});
  moved_at_ = Clock::now();
}

namespace {

// Segments of the whole buffer, each for every member in turn.
class WholeBufferPhase : public Phase {
 public:
  WholeBufferPhase(const PhaseContext& context, std::vector<int> members)
      : Phase(context),
        members_(std::move(members)),
        total_(this->context().segments(context.call.count) * std::ssize(members_)) {}

 protected:
  bool all_posted() const override { return posted_ == total_; }
  Message next() const {
    return {.number = posted_,
            .elements = context().segment({0, context().call.count}, posted_ / std::ssize(members_))};
  }
  int next_member() const { return members_[static_cast<std::size_t>(posted_ % std::ssize(members_))]; }
  std::int64_t posted() const { return posted_; }
  void count_posted() { ++posted_; }

 private:
  const std::vector<int> members_;
  const std::int64_t total_;
  std::int64_t posted_ = 0;
};

class SendPhase : public WholeBufferPhase {
 public:
  using WholeBufferPhase::WholeBufferPhase;

 protected:
  bool post_some() override {
    const std::int64_t before = posted();
    for (; !all_posted() && sends() < window(); count_posted()) send(next_member(), next());
    return posted() > before;
  }
};

class ReceivePhase : public WholeBufferPhase {
 public:
  using WholeBufferPhase::WholeBufferPhase;

 protected:
  bool post_some() override {
    const std::int64_t before = posted();
    for (; !all_posted() && receives() < window(); count_posted()) receive(next_member(), next());
    return posted() > before;
  }
};

class SumPhase : public WholeBufferPhase {
 public:
  using WholeBufferPhase::WholeBufferPhase;

 protected:
  bool post_some() override {
    const std::int64_t before = posted();
    for (; !all_posted() && receives() < window(); count_posted()) {
      Message message = next();
      message.slot = context().slot(posted() % window(), window());
      receive(next_member(), std::move(message));
    }
    return posted() > before;
  }
  void received(const Message& message) override {
    std::byte* const own = context().at(message.elements.begin);
    add(own, message.slot, own, message.elements);
  }
};

class ExchangePhase : public WholeBufferPhase {
 public:
  ExchangePhase(const PhaseContext& context, int partner) : WholeBufferPhase(context, {partner}), partner_(partner) {}

 protected:
  bool post_some() override {
    const std::int64_t before = posted();
    for (; !all_posted() && posted() - added_ < window(); count_posted()) {
      send(partner_, next());
      Message message = next();
      message.slot = context().slot(posted() % window(), window());
      receive(partner_, std::move(message));
    }
    return posted() > before;
  }
  // A segment has to have left before its sum takes its place.
  void sent(const Message&) override {
    ++left_;
    add_ready();
  }
  void received(const Message&) override {
    ++arrived_;
    add_ready();
  }

 private:
  void add_ready() {
    for (; added_ < std::min(left_, arrived_); ++added_) {
      const Share elements = context().segment({0, context().call.count}, added_);
      std::byte* const own = context().at(elements.begin);
      const std::byte* const theirs = context().slot(added_ % window(), window());
      const bool own_first = context().inner.index() < partner_;
      add(own_first ? own : theirs, own_first ? theirs : own, own, elements);
    }
  }

  const int partner_;
  std::int64_t left_ = 0;
  std::int64_t arrived_ = 0;
  std::int64_t added_ = 0;
};

// The messages of one direction of a ring, in order: a window of segments of the first share, the same segments of the
// next share, and so on around the ring; then the next window of segments. Segment-wise order would have one message
// under way at a time, share-wise order more partial sums at once than there are slots.
class RingWalk {
 public:
  // first_share: the one that passes in step 0; each step after, the one before it.
  RingWalk(const PhaseContext& context, const Ring& ring, int first_share)
      : context_(context), size_(ring.size()), first_share_(first_share) {
    const std::int64_t segments = context.segments(divide_up(context.call.count, size_));  // of the longest share
    const std::int64_t windows = divide_up(segments, context.options.window);
    end_ = windows * steps() * context.options.window;
    skip_absent();
  }

  bool at_end() const { return number_ == end_; }
  std::int64_t number() const { return number_; }
  std::int64_t step() const { return number_ / context_.options.window % steps(); }
  bool last_step() const { return step() == steps() - 1; }
  Share elements() const { return context_.segment(share(), segment()); }
  void next() {
    ++number_;
    skip_absent();
  }

 private:
  int steps() const { return size_ - 1; }
  std::int64_t segment() const {
    const std::int64_t window = context_.options.window;
    return number_ / (window * steps()) * window + number_ % window;
  }
  Share share() const {
    const auto owner = static_cast<int>((first_share_ - step() + 2 * size_) % size_);
    return share_of(context_.call.count, owner, size_);
  }
  void skip_absent() {
    while (!at_end() && segment() >= context_.segments(share().end - share().begin)) ++number_;
  }

  const PhaseContext& context_;
  const int size_;
  const int first_share_;
  std::int64_t end_ = 0;
  std::int64_t number_ = 0;
};

class RingScatterPhase : public Phase {
 public:
  RingScatterPhase(const PhaseContext& phase_context, Ring ring)
      : Phase(phase_context),
        ring_(std::move(ring)),
        out_(context(), ring_, ring_.place - 1),
        in_(context(), ring_, ring_.place - 2),
        slots_(2 * window()),
        busy_(static_cast<std::size_t>(slots_)) {}

 protected:
  bool all_posted() const override { return out_.at_end() && in_.at_end(); }

  bool post_some() override {
    bool any = false;
    for (; !in_.at_end() && !busy_[next_slot_]; in_.next()) {
      busy_[next_slot_] = true;
      std::byte* const slot = context().slot(static_cast<std::int64_t>(next_slot_), slots_);
      receive(ring_.predecessor(),
              {.number = in_.number(), .elements = in_.elements(), .slot = slot, .last = in_.last_step()});
      next_slot_ = (next_slot_ + 1) % busy_.size();
      any = true;
    }
    for (; !out_.at_end() && sends() < window(); out_.next()) {
      Message message{.number = out_.number(), .elements = out_.elements()};
      if (out_.step() > 0) {
        if (partial_sums_.empty()) break;
        message.slot = partial_sums_.front();
        partial_sums_.pop_front();
      }
      send(ring_.successor(), std::move(message));
      any = true;
    }
    return any;
  }

  void received(const Message& message) override {
    std::byte* const own = context().at(message.elements.begin);
    add(message.slot, own, message.last ? own : message.slot, message.elements);
    if (message.last) {
      set_free(message.slot);
    } else {
      partial_sums_.push_back(message.slot);
    }
  }
  void sent(const Message& message) override {
    if (message.slot != nullptr) set_free(message.slot);
  }

 private:
  void set_free(const std::byte* slot) {
    for (std::size_t i = 0; i < busy_.size(); ++i) {
      if (slot == context().slot(static_cast<std::int64_t>(i), slots_)) busy_[i] = false;
    }
  }

  const Ring ring_;
  RingWalk out_;
  RingWalk in_;
  const std::int64_t slots_;
  std::vector<bool> busy_;
  std::size_t next_slot_ = 0;
  std::deque<std::byte*> partial_sums_;  // to be sent on, in this order
};

class RingGatherPhase : public Phase {
 public:
  RingGatherPhase(const PhaseContext& phase_context, Ring ring)
      : Phase(phase_context),
        ring_(std::move(ring)),
        out_(context(), ring_, ring_.place),
        in_(context(), ring_, ring_.place - 1) {}

 protected:
  bool all_posted() const override { return out_.at_end() && in_.at_end(); }

  bool post_some() override {
    bool any = false;
    for (; !in_.at_end() && receives() < window(); in_.next()) {
      receive(ring_.predecessor(), {.number = in_.number(), .elements = in_.elements(), .last = in_.last_step()});
      any = true;
    }
    for (; !out_.at_end() && sends() < window(); out_.next()) {
      if (out_.step() > 0) {
        if (to_pass_on_ == 0) break;
        --to_pass_on_;
      }
      send(ring_.successor(), {.number = out_.number(), .elements = out_.elements()});
      any = true;
    }
    return any;
  }
  void received(const Message& message) override {
    if (!message.last) ++to_pass_on_;
  }

 private:
  const Ring ring_;
  RingWalk out_;
  RingWalk in_;
  std::int64_t to_pass_on_ = 0;  // segments that have come and have not been sent on
};

}  // namespace

std::unique_ptr<Phase> make_send_phase(const PhaseContext& context, std::vector<int> members) {
  return std::make_unique<SendPhase>(context, std::move(members));
}

std::unique_ptr<Phase> make_receive_phase(const PhaseContext& context, int member) {
  return std::make_unique<ReceivePhase>(context, std::vector<int>{member});
}

std::unique_ptr<Phase> make_sum_phase(const PhaseContext& context, std::vector<int> members) {
  return std::make_unique<SumPhase>(context, std::move(members));
}

std::unique_ptr<Phase> make_exchange_phase(const PhaseContext& context, int partner) {
  return std::make_unique<ExchangePhase>(context, partner);
}

std::unique_ptr<Phase> make_ring_scatter_phase(const PhaseContext& context, const Ring& ring) {
  return std::make_unique<RingScatterPhase>(context, ring);
}

std::unique_ptr<Phase> make_ring_gather_phase(const PhaseContext& context, const Ring& ring) {
  return std::make_unique<RingGatherPhase>(context, ring);
}

}  // namespace trireme::comm
