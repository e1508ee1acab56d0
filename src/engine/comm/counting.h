#pragma once

// Counts what a rank sends: law 1. A decorator of any communicator, so that the count does not depend on the backend.
//
// Bytes are those of sent_elements() for the algorithm of the group; of a broadcast, (N - 1) times the whole by the
// root. Receives and barriers send nothing and are not counted; nor is anything in a group of one.

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/collective_bytes.h"
#include "base/units.h"
#include "engine/comm/communicator.h"

namespace trireme::comm {

struct TrafficCount {
  std::string axis;
  std::string collective;  // "all-reduce", "reduce-scatter", "all-gather", "broadcast", "send"
  std::int64_t calls = 0;
  Bytes sent;
  friend bool operator==(const TrafficCount&, const TrafficCount&) = default;
};

// The counters of one rank, over all of its communicators. That rank's thread only.
class TrafficCounters {
 public:
  void add(std::string_view axis, std::string_view collective, Bytes sent);
  // Sorted by axis and collective; what was never called is absent.
  std::vector<TrafficCount> counts() const;
  void reset() { counts_.clear(); }

 private:
  std::map<std::pair<std::string, std::string>, TrafficCount> counts_;
};

// A call is counted before it is made. `counters` outlives the communicator. algorithm: how `inner` forms its sums;
// host_of_group_member: for kHierarchical alone, may be empty otherwise.
std::unique_ptr<Communicator> make_counting_communicator(std::unique_ptr<Communicator> inner, TrafficCounters& counters,
                                                         ReduceAlgorithm algorithm = ReduceAlgorithm::kOrdered,
                                                         std::vector<int> host_of_group_member = {});

}  // namespace trireme::comm
