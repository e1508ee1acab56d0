#pragma once

// Exit codes of the program. Scripts and schedulers rely on them: 2 means "do not requeue", 75 means "requeue
// me". A command never exits with 0 after a failure.

namespace trireme {

enum class ExitCode : int {
  kDone = 0,
  kWithinBound = 1,    // verify: not the same bits, within the bound that is promised
  kUsage = 2,          // usage or configuration: running it again cannot help
  kInternal = 70,      // a broken invariant of ours
  kDoesNotFit = 71,    // refused before allocation, or out of memory
  kDiverged = 72,      // NaN or infinity in loss or gradient
  kRequeue = 75,       // stopped for a reason outside: run it again
  kPreempted = 76,     // preempted, checkpoint durable
  kNoProgress = 78,    // no progress after retries
  kStorage = 79,       // no valid checkpoint, or storage failure
  kHang = 86,          // a wait passed its deadline
  kCorrupted = 87,     // replicas differ
  kRankLost = 88,      // a rank was lost
  kInterrupted = 130,  // interrupted by the user, after a save
};

}  // namespace trireme
