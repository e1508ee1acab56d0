#include "telemetry/trace.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include <fmt/format.h>

#include "base/check.h"

namespace trireme::telemetry {
namespace {

constexpr double kNanoseconds = 1e9;

// A file's times, in whole nanoseconds since its origin: rounding keeps what lies within what.
struct Interval {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// The order of a file's events: by begin, the outer first.
std::vector<std::size_t> outer_first(const std::vector<Interval>& times, std::vector<std::size_t> members) {
  std::sort(members.begin(), members.end(), [&](std::size_t a, std::size_t b) {
    if (times[a].begin != times[b].begin) return times[a].begin < times[b].begin;
    if (times[a].end != times[b].end) return times[a].end > times[b].end;
    return a > b;  // the outer one ends, and is added, last
  });
  return members;
}

// Lane of each member, in their order, so that those of a lane lie apart.
std::vector<int> lanes_of(const std::vector<Interval>& times, const std::vector<std::size_t>& members) {
  std::vector<std::int64_t> ends;
  std::vector<int> lanes;
  for (const std::size_t member : members) {
    const auto lane = std::find_if(ends.begin(), ends.end(), [&](auto end) { return end <= times[member].begin; });
    lanes.push_back(static_cast<int>(lane - ends.begin()));
    if (lane == ends.end()) {
      ends.push_back(times[member].end);
    } else {
      *lane = times[member].end;
    }
  }
  return lanes;
}

Json metadata(std::string_view name, int pid, std::int64_t tid, Json args) {
  return Json::object({{"name", name}, {"ph", "M"}, {"ts", 0}, {"pid", pid}, {"tid", tid}, {"args", std::move(args)}});
}

Json complete(const Span& span, const Interval& time, int pid, std::int64_t tid) {
  Json args = Json::object();
  const std::pair<const char*, std::int64_t> numbers[] = {{"step", span.place.step},
                                                          {"unit", span.place.unit},
                                                          {"micro_batch", span.place.micro_batch},
                                                          {"chunk", span.place.chunk},
                                                          {"bytes", span.bytes}};
  for (const auto& [name, value] : numbers) {
    if (value >= 0) args[name] = value;
  }
  if (!span.detail.empty()) args["detail"] = span.detail;
  constexpr double kOfMicrosecond = 1000.0;
  return Json::object({{"name", span.name},
                       {"cat", category_name(span.category)},
                       {"ph", "X"},
                       {"ts", static_cast<double>(time.begin) / kOfMicrosecond},
                       {"dur", static_cast<double>(time.end - time.begin) / kOfMicrosecond},
                       {"pid", pid},
                       {"tid", tid},
                       {"args", std::move(args)}});
}

constexpr const char* kWork = "compute";  // the track of the rank's thread
constexpr std::int64_t kLanes = 10'000;   // of an axis, at most: numbers of its tracks

}  // namespace

Seconds RankTimeline::begin() const {
  double first = std::numeric_limits<double>::infinity();
  for (const Span& span : spans) first = std::min(first, span.begin.count);
  return {spans.empty() ? 0.0 : first};
}

TracePart trace_part(const RankTimeline& timeline, const ClockOffset& clock, Seconds origin) {
  const double shift = clock.offset.count - origin.count;
  const auto nanoseconds = [&](Seconds time) { return std::llround((time.count + shift) * kNanoseconds); };
  std::vector<Interval> times;
  std::map<std::string, std::vector<std::size_t>> tracks{{"", {}}};
  for (std::size_t i = 0; i < timeline.spans.size(); ++i) {
    const Span& span = timeline.spans[i];
    times.push_back({nanoseconds(span.begin), nanoseconds(span.end)});
    tracks[span.track].push_back(i);
  }
  TracePart part;
  const auto event = [&](const Json& json) { part.events += (part.events.empty() ? "" : ",\n") + json.dump(); };
  const int pid = timeline.rank;
  event(metadata("process_name", pid, 0, Json::object({{"name", timeline.name}})));
  event(metadata("process_sort_index", pid, 0, Json::object({{"sort_index", pid}})));
  std::int64_t axis = 0;
  for (const auto& [name, members] : tracks) {
    const std::vector<std::size_t> order = outer_first(times, members);
    const bool work = name.empty();
    const std::vector<int> lanes = work ? std::vector<int>(order.size(), 0) : lanes_of(times, order);
    const int last_lane = lanes.empty() ? 0 : *std::max_element(lanes.begin(), lanes.end());
    TRIREME_CHECK(last_lane < kLanes, "{} operations over {} at once", last_lane + 1, name);
    const std::int64_t first_tid = kLanes * axis++;
    for (int lane = 0; lane <= last_lane; ++lane) {
      const std::string track = work ? kWork : name;
      event(metadata("thread_name", pid, first_tid + lane,
                     Json::object({{"name", lane == 0 ? track : fmt::format("{} ({})", track, lane + 1)}})));
      event(metadata("thread_sort_index", pid, first_tid + lane, Json::object({{"sort_index", first_tid + lane}})));
    }
    for (std::size_t i = 0; i < order.size(); ++i) {
      event(complete(timeline.spans[order[i]], times[order[i]], pid, first_tid + lanes[i]));
    }
  }
  part.facts = Json::object({{"rank", timeline.rank},
                             {"host", timeline.host},
                             {"dropped_spans", timeline.dropped},
                             {"clock", clock.estimated ? "estimated" : "shared"},
                             {"clock_offset_s", clock.offset.count},
                             {"clock_round_trip_s", clock.round_trip.count}});
  return part;
}

TraceWriter::TraceWriter(Env& env, const std::string& path) : file_(env, path) {
  file_.writer().write_text("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[");
}

void TraceWriter::add(const TracePart& part) {
  file_.writer().write_text(ranks_.as_array().empty() ? "\n" : ",\n");
  file_.writer().write_text(part.events);
  ranks_.push_back(part.facts);
}

void TraceWriter::close(Json about) {
  about["ranks"] = std::move(ranks_);
  file_.writer().write_text("\n],\"otherData\":" + about.dump() + "}\n");
  file_.commit();
}

}  // namespace trireme::telemetry
