#pragma once

// Ranks as threads of one process. They read each other's buffers, so nothing is staged; by definition a rank sends
// what a peer reads from it.
//
// Collectives and barriers block until the whole group has met and all have the result: the Request that they return is
// complete. Sends and receives do not block; whichever of the two ranks comes second copies. Data are host memory; the
// stream is ignored.
//
// The first error (a deadline passed, ranks that disagree, a lost rank) ends the whole world: whoever waits throws, and
// so does every later call of any of its communicators, with the first error's exit code and words.

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

  // The thread of `world_rank` has ended with an error: the others need not wait for their deadline. They throw
  // Error(kRankLost). Any thread.
  void report_lost(int world_rank, const std::string& reason);

 private:
  std::shared_ptr<World> world_;
};

}  // namespace trireme::comm
