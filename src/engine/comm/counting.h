#pragma once

// Counts what a rank sends: law 1. A decorator of any communicator, so that the count does not depend on the backend.
//
// Bytes are those of the default algorithms. A share is that of share_of(); s_r the bytes of rank r's, of N ranks:
//   reduce-scatter (direct)  to each other rank r its s_r            the whole less the own share
//   all-gather (ring)        every share but the successor's         the whole less s_(index + 1) mod N
//   all-reduce               one after the other                     the sum of the two
//   broadcast                the root, to each other rank            (N - 1) times the whole; others nothing
//   send                     the whole
// Receives and barriers send nothing and are not counted; nor is anything in a group of one.

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

// A call is counted before it is made. `counters` outlives the communicator.
std::unique_ptr<Communicator> make_counting_communicator(std::unique_ptr<Communicator> inner,
                                                         TrafficCounters& counters);

}  // namespace trireme::comm
