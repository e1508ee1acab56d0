#pragma once

// The collectives as state machines over a Transport: advance() posts what may be posted, tests what is under way,
// and never waits. Data move in segments, a window of them at a time.
//
// Tags. Tag 0 is the world's. Others: 1 + ((group id * kSlots + sequence number mod kSlots) * 4 + kind). The group id
// is the number of the group among those that the two ranks share. Collectives have one sequence of numbers, messages
// one for each peer and direction. An operation starts only when that of the same slot before it is complete, so a tag
// that comes again cannot be mistaken: both sides have posted all messages of its earlier use.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/comm/message_world.h"

namespace trireme::comm {

enum class TagKind { kCall, kScatter, kGather, kMessage };

inline constexpr int kSlots = 64;

// Messages between this rank and one peer, in one direction, under one tag: at most a window of them at once.
class Lane {
 public:
  Lane(Transport& transport, int peer, int tag, int window)
      : transport_(&transport), peer_(peer), tag_(tag), window_(window) {}

  bool has_room() const { return static_cast<int>(under_way_.size()) < window_; }
  void send(std::span<const std::byte> data);
  void receive(std::span<std::byte> data);
  bool poll();  // whether any has ended
  std::int64_t posted() const { return posted_; }
  std::int64_t complete() const { return posted_ - static_cast<std::int64_t>(under_way_.size()); }

 private:
  Transport* transport_;
  int peer_;
  int tag_;
  int window_;
  std::int64_t posted_ = 0;
  std::deque<Transport::Ticket> under_way_;
};

// A call as it travels.
struct CallWord {
  std::uint64_t group = 0;
  std::int64_t count = 0;
  std::int64_t sequence = 0;
  std::int32_t operation = 0;
  std::int32_t dtype = 0;
  std::int32_t reduction = 0;
  std::int32_t root = 0;
};

// Turns at the staging memory of a communicator, first come first served: an operation that has it can always end,
// since those before it have it or have had it, and sending needs none. The memory is cut into one part for each that
// may hold some at once.
class StagingTurns {
 public:
  StagingTurns(std::span<std::byte> memory, int limit);
  // CHECK: a part has so many bytes.
  std::int64_t draw(std::int64_t bytes);
  bool try_enter(std::int64_t number);
  // The part that the one which has entered works in, until it leaves.
  std::span<std::byte> memory();
  void leave(std::span<std::byte> memory);

 private:
  std::int64_t drawn_ = 0;
  std::int64_t entered_ = 0;
  std::size_t limit_;
  std::size_t part_;                        // bytes of one
  std::vector<std::span<std::byte>> free_;  // parts, whole
};

class RunningOperation {
 public:
  RunningOperation(MessageWorld& world, std::shared_ptr<const MessageGroup> group, const Call& call,
                   std::int64_t sequence, std::shared_ptr<RunningOperation> before);
  virtual ~RunningOperation() = default;

  bool complete() const { return complete_; }
  Clock::time_point completed_at() const { return completed_at_; }
  bool advance();  // whether anything has moved
  std::string text() const { return call_.text() + " over " + group_->name.axis; }
  // "waited 500.0 ms; ranks arrived: 0, 2; missing: 1"
  virtual std::string late_text(const std::string& waited) const = 0;

 protected:
  virtual bool step() = 0;
  virtual bool finished() const = 0;

  Transport& transport() { return world_.transport(); }
  const Call& call() const { return call_; }
  const MessageGroup& group() const { return *group_; }
  int size() const { return group_->size(); }
  int index() const { return group_->index; }
  std::string who(int member) const;
  std::int64_t element() const { return dtype_size(call_.dtype); }
  Lane lane(int member, TagKind kind, int window);
  CallWord own_word() const;
  // Ends the world unless the peer's word is of this very operation.
  void check_word(const CallWord& word, int member, const Call& expected);

  // Segments of a run of elements.
  std::int64_t segments_of(Share share) const;
  std::span<std::byte> segment(Share share, std::int64_t number) const;

  MessageWorld& world_;

 private:
  const std::shared_ptr<const MessageGroup> group_;
  const Call call_;
  const std::int64_t sequence_;
  std::shared_ptr<RunningOperation> before_;  // of the same slot; null once it is complete
  bool complete_ = false;
  Clock::time_point completed_at_ = {};
};

// Starts it in its world; complete when the request is waited for.
std::unique_ptr<Request> start_operation(const std::shared_ptr<MessageWorld>& world,
                                         std::shared_ptr<RunningOperation> operation);

// The word of each rank to each other, then the parts that the operation is made of.
class Collective : public RunningOperation {
 public:
  // turns: of the communicator, for reductions; outlives the operation.
  Collective(MessageWorld& world, std::shared_ptr<const MessageGroup> group, const Call& call, std::int64_t sequence,
             std::shared_ptr<RunningOperation> before, std::shared_ptr<StagingTurns> turns);
  ~Collective() override;
  std::string late_text(const std::string& waited) const override;

 protected:
  bool step() override;
  bool finished() const override;

 private:
  struct Peer {
    int member;
    Lane word_out, word_in;
    CallWord word;
    bool arrived = false;
    Lane out, in;  // of the reduce-scatter, or of the broadcast
  };

  Share share(int member) const { return share_of(call().count, member, size()); }
  Share own_share() const { return share(index()); }
  Peer& peer_of(int member);
  bool reduces() const;
  bool gathers() const;
  // Of what the operation waits for, once all have called it: "data of 0, a receive by 2". World ranks.
  std::string missing_data() const;

  bool step_words();
  // Direct reduce-scatter: each rank sends every share to its owner, who adds them in ascending order of index.
  bool step_scatter();
  bool send_shares();
  bool receive_contributions();
  bool reduce_segments();
  std::int64_t slot_bytes() const;
  std::int64_t slots() const;  // for each peer
  std::span<std::byte> staging_slot(std::size_t peer, std::int64_t segment_number);
  // Ring all-gather: to the next rank the own share, then what came from the previous one.
  bool step_gather();
  bool step_broadcast();

  std::vector<Peer> peers_;  // by index in the group, without this rank; never moved: words are under way
  CallWord words_out_;
  std::shared_ptr<StagingTurns> turns_;
  std::int64_t turn_ = -1;
  bool staged_ = false;    // has had its turn
  bool unstaged_ = false;  // and given the memory back
  std::span<std::byte> staging_;
  std::int64_t reduced_ = 0;  // segments of the own share

  // Of the ring: the segments in the order in which they pass, the own share first when sending.
  struct Passing {
    int owner;
    std::int64_t number;  // of the segment in its share
  };
  std::vector<Passing> to_send_;
  std::vector<Passing> to_receive_;
  std::unique_ptr<Lane> ring_out_;
  std::unique_ptr<Lane> ring_in_;
};

// One message: the word of the sender, then the data.
class Message : public RunningOperation {
 public:
  Message(MessageWorld& world, std::shared_ptr<const MessageGroup> group, const Call& call, int peer,
          std::int64_t sequence, std::shared_ptr<RunningOperation> before);
  std::string late_text(const std::string& waited) const override;

 protected:
  bool step() override;
  bool finished() const override;

 private:
  const int peer_;
  Lane lane_;
  CallWord word_;
  bool checked_ = false;  // a receiver has read the sender's word
};

}  // namespace trireme::comm
