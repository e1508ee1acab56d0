#pragma once

// Ranks as threads of one process. They read and write each other's buffers, so nothing is staged; by definition a rank
// sends what a peer reads from it.
//
// An operation starts when it is called, and its Request comes back at once; many may be outstanding. When all of its
// ranks have called it, its data move in segments, each by the thread of any rank of the group that waits, asks done()
// or calls progress(): a rank that computes meanwhile is not needed, nor is a thread or core beside the ranks'. Buffers
// of at most 64 KiB move in the last rank's call. Until a rank has waited for an operation, its peers read and write
// the data that it gave: it does not write them itself, nor read what it is to receive. The k-th collectives that the
// ranks of a group call are one operation, and messages between two ranks meet in the order of their calls. Data are
// host memory; the stream is ignored. A wait counts its deadline from the last segment that it did itself.
//
// The first error (a deadline passed, ranks that disagree, a lost rank) ends the whole world: whoever waits throws, and
// so does every later call of any of its communicators, with the first error's exit code and words. When a wait has
// thrown, or a Request was destroyed, no other rank touches its data any more.

#include <memory>
#include <string>

#include "base/units.h"
#include "engine/comm/communicator.h"

namespace trireme::comm {

class World;

class ThreadWorld {
 public:
  // deadline: of each wait for another rank.
  ThreadWorld(int ranks, Seconds deadline);

  // Rank `world_rank`'s member of a group. All ranks of the group ask for it; a rank that asks again for the same group
  // gets a member of a further one. Any thread may ask for any rank; the world may end before its communicators.
  std::unique_ptr<Communicator> make_communicator(const GroupName& name, int world_rank);

  // Of waits that begin later. Any thread.
  void set_deadline(Seconds deadline);

  // The thread of `world_rank` has ended with an error: the others need not wait for their deadline. They throw
  // Error(kRankLost). Any thread.
  void report_lost(int world_rank, const std::string& reason);

 private:
  std::shared_ptr<World> world_;
};

}  // namespace trireme::comm
