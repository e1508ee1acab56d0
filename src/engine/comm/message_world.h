#pragma once

// Ranks as processes that exchange messages over a Transport: groups, running operations, deadlines, death.
//
// Algorithms (message_operations.h) are deterministic: sums are those of reduce_in_order(), as with threads, bit for
// bit. Requests are asynchronous: progress() of any communicator, done() and wait() move all running operations of the
// world on, so ranks may wait for their operations in any order.
//
// Every operation but send and receive begins with a word from each rank to each other, its call: that is how ranks
// that disagree find out (kInternal, both calls named), how a deadline names who has arrived and who has not (kHang),
// and what a barrier is. The deadline is of each wait, and counts from the last message that arrived or left.
//
// The first error ends the world: the rank that has it tells all others, and whoever waits there throws the same
// error; every later call says since when and why the world is dead. No message moves after that. A rank that fails
// for a reason of its own says so by report_lost().

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/collective_bytes.h"
#include "base/env.h"
#include "base/units.h"
#include "engine/comm/call.h"
#include "engine/comm/communicator.h"
#include "engine/comm/transport.h"

namespace trireme::comm {

struct MessageOptions {
  Seconds deadline{60};
  SegmentOptions segments = {};  // window: of messages from a rank into staging memory, of an operation
  int direct_window = 64;        // and between two ranks from or into an operation's own data, in one direction
  int staged_operations = kStagedOperations;
};

class RunningOperation;

// The members of a group as this rank sees them.
struct MessageGroup {
  GroupName name;
  int index = 0;                  // of this rank
  std::vector<std::int64_t> ids;  // by index: which of the groups that this rank shares with that one
  std::uint64_t fingerprint = 0;  // of the name

  int size() const { return static_cast<int>(name.ranks.size()); }
  int world_rank(int member) const { return name.ranks[static_cast<std::size_t>(member)]; }
};

class MessageWorld {
 public:
  // env outlives the world.
  MessageWorld(std::shared_ptr<Transport> transport, Env& env, MessageOptions options);
  ~MessageWorld();
  MessageWorld(const MessageWorld&) = delete;
  MessageWorld& operator=(const MessageWorld&) = delete;

  // This rank's member of a group. All ranks of the group ask for it, and two ranks ask for the groups that they share
  // in the same order (if not, an operation finds the other group's words and refuses, or its deadline passes). Moves
  // no messages. staging: message_staging_bytes() of the largest reduction, as GroupOptions say.
  static std::unique_ptr<Communicator> make_communicator(const std::shared_ptr<MessageWorld>& world,
                                                         const GroupName& name, std::span<std::byte> staging = {});

  // Of waits that begin later.
  void set_deadline(Seconds deadline);

  // This rank has failed: the others throw Error(kRankLost) instead of waiting for their deadline. Throws nothing.
  void report_lost(const std::string& reason);
  // The end, in order: waits for all ranks; then every call refuses. Error if the world is dead or dies.
  void close();
  bool dead() const { return death_ != nullptr; }

  // --- For communicators and operations.
  Transport& transport() { return *transport_; }
  const MessageOptions& options() const { return options_; }
  // Throws if the world is dead.
  void check_alive(const std::string& operation) const;
  void start(const std::shared_ptr<RunningOperation>& operation);
  // Whether anything has moved. Throws the first error.
  bool progress();
  void wait(RunningOperation& operation);
  [[noreturn]] void die(Death death);

 private:
  struct Notice;  // what a dying rank sends to the others

  MessageGroup group_of(const GroupName& name);
  void check_notice();
  void tell_others();

  const std::shared_ptr<Transport> transport_;
  Env& env_;
  MessageOptions options_;
  std::unique_ptr<const Death> death_;                    // null while alive
  std::map<int, std::int64_t> shared_groups_;             // by world rank: how many groups are shared with it so far
  std::list<std::shared_ptr<RunningOperation>> running_;  // in the order of their start
  std::unique_ptr<Notice> received_;
  std::unique_ptr<Notice> sent_;
  std::optional<Transport::Ticket> notice_ticket_;
};

}  // namespace trireme::comm
