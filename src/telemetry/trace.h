#pragma once

// Timelines of ranks as one file in the Trace Event Format, which Perfetto and chrome://tracing show: written, and read
// with a check of its form (docs/formats/trace.md).

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/env.h"
#include "base/json.h"
#include "telemetry/timeline.h"

namespace trireme::telemetry {

// One rank's part.
struct RankTimeline {
  int rank = 0;
  std::string name = {};  // "rank 3 (dp 0, tp 1, pp 1) host"
  std::string host = {};
  std::int64_t dropped = 0;      // spans that found no room
  std::vector<Span> spans = {};  // on the rank's clock, or, read from a file, since its origin
  Seconds begin() const;         // of the first span; 0 where there is none

  friend bool operator==(const RankTimeline&, const RankTimeline&) = default;
};

// How a rank's clock stands to the leader's.
struct ClockOffset {
  Seconds offset;          // added to the rank's time gives the leader's
  Seconds round_trip;      // of the message by which it was estimated: the error is at most half of it
  bool estimated = false;  // else both ranks are on one host, and read one clock
};

// A rank's part of a file, which each rank makes for itself. origin: the file's zero, on the leader's clock.
struct TracePart {
  std::string events;  // of traceEvents, with commas between them
  Json facts;          // of otherData.ranks
};
TracePart trace_part(const RankTimeline& timeline, const ClockOffset& clock, Seconds origin);

// Writes one rank's part after another. The file appears whole, by close(), or not at all.
class TraceWriter {
 public:
  TraceWriter(Env& env, const std::string& path);
  void add(const TracePart& part);
  // about: members of the file's otherData beside those of the ranks.
  void close(Json about);

 private:
  AtomicFile file_;
  Json ranks_ = Json::array();
};

struct Trace {
  Json about;                       // otherData
  std::vector<RankTimeline> ranks;  // ascending; spans of a track by begin, the outer of two first
};
// The Failure names the event that breaks the format, and the rule: every event has name, ph, ts, pid and tid; complete
// events ("X") a dur that is not negative; those of a track lie apart or one within the other; each track and process
// is named.
Result<Trace> parse_trace(std::string_view text, std::string_view what);

}  // namespace trireme::telemetry
