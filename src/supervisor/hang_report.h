#pragma once

// What a hang is, from what the ranks say: which collective of which group at which step, who has arrived, who has not.
// Pure.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "telemetry/control_message.h"

namespace trireme::supervisor {

struct HangEvidence {
  int ranks = 0;                                                   // of the run
  std::map<int, telemetry::RankProgress> progress;                 // last known, by rank
  std::map<int, std::vector<telemetry::OperationRecord>> records;  // by rank; absent: it did not answer
};

struct HangReport {
  std::vector<int> culprits;  // ranks that the others wait for; all that tell nothing, if nobody can be told apart
  std::string axis;           // of the operation that they are missing in; "": none is known
  std::vector<int> group;
  std::string operation;
  std::int64_t sequence = 0;
  std::int64_t step = 0;
  std::vector<int> arrived;
  std::vector<int> missing;
  std::vector<int> silent;  // ranks that did not answer (a stopped process)
  std::string text;         // all of it, for people: one sentence, then a line a rank (at most 16)
};

// Silent ranks are the culprits where there are any. Else the ranks wait for each other so:
//   * in a collective, for the members that have not begun it: those that have begun fewer operations of the group,
//     or, in a group that also sends and receives (each member counts its own), those that are in none like it;
//   * in a receive, for the sender: the one that the record names ("receive from index 2 of 5 F32", index in the
//     group), else both neighbours in the ring of the group, which all messages of a pipeline go between;
//   * between steps, for rank 0's word.
// Only the oldest unfinished operation that misses somebody counts: others may be done and not looked at yet. The
// culprits are those that wait for nobody, of them those at the earliest step, of those the ones that are waited for;
// of several that have an unfinished send those do not count that may be stuck in sending to another of them. Where
// all wait in a cycle: all of it.
HangReport diagnose_hang(const HangEvidence& evidence);

}  // namespace trireme::supervisor
