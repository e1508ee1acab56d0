// parse_trace: the form of a file is checked while it is read.

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "telemetry/trace.h"

namespace trireme::telemetry {
namespace {

using TrackKey = std::pair<std::int64_t, std::int64_t>;  // pid, tid

struct Event {
  std::size_t number = 0;  // in traceEvents
  std::int64_t begin = 0;  // nanoseconds
  std::int64_t end = 0;
  Span span;
};

std::optional<SpanCategory> category_of(std::string_view name) {
  for (const SpanCategory c : {SpanCategory::kCompute, SpanCategory::kCommunication, SpanCategory::kWaiting}) {
    if (category_name(c) == name) return c;
  }
  return std::nullopt;
}

class Reader {
 public:
  explicit Reader(std::string_view what) : what_(what) {}

  Result<Trace> read(const Json& file) {
    const Json* events = file.find("traceEvents");
    if (events == nullptr || !events->is_array()) return wrong("must be an object with a list traceEvents");
    for (std::size_t i = 0; i < events->as_array().size(); ++i) {
      if (Status status = event(events->as_array()[i], i); !status) return status.failure();
    }
    Trace trace;
    if (const Json* about = file.find("otherData")) trace.about = *about;
    for (auto& [track, members] : tracks_) {
      if (Status status = check_nesting(members); !status) return status.failure();
      if (!track_names_.contains(track)) {
        return wrong(fmt::format("track {} of process {} has no thread_name", track.second, track.first));
      }
      if (!process_names_.contains(track.first)) {
        return wrong(fmt::format("process {} has no process_name", track.first));
      }
    }
    for (const auto& [pid, name] : process_names_) trace.ranks.push_back(rank(pid, name, trace.about));
    return trace;
  }

 private:
  Failure wrong(std::string rule) const {
    return {.option = "trace file", .value = std::string(what_), .rule = std::move(rule), .nearest = ""};
  }
  Failure wrong_event(std::size_t number, std::string_view rule) const {
    return wrong(fmt::format("event {}: {}", number, rule));
  }

  Status event(const Json& json, std::size_t number) {
    const Json *name = json.find("name"), *ph = json.find("ph"), *ts = json.find("ts"), *pid = json.find("pid"),
               *tid = json.find("tid");
    if (name == nullptr || !name->is_string()) return wrong_event(number, "needs a text name");
    if (ph == nullptr || !ph->is_string()) return wrong_event(number, "needs a text ph");
    if (ts == nullptr || !usable(*ts)) return wrong_event(number, "needs a number ts");
    if (pid == nullptr || !pid->is_integer()) return wrong_event(number, "needs an integer pid");
    if (tid == nullptr || !tid->is_integer()) return wrong_event(number, "needs an integer tid");
    const TrackKey track{pid->as_integer(), tid->as_integer()};
    const std::string& phase = ph->as_string();
    if (phase == "M") return metadata(json, name->as_string(), track, number);
    if (phase == "X") return complete(json, track, number);
    return wrong_event(number, "has a ph that is neither M nor X");
  }

  // Within a year: far more than a trace holds, far less than a 64-bit count of nanoseconds.
  static bool usable(const Json& microseconds) {
    constexpr double kYear = 3.2e13;
    return microseconds.is_number() && std::abs(microseconds.as_number()) <= kYear;
  }

  Status metadata(const Json& json, const std::string& kind, const TrackKey& track, std::size_t number) {
    if (kind != "process_name" && kind != "thread_name") return ok_status();
    const Json* args = json.find("args");
    const Json* name = args == nullptr ? nullptr : args->find("name");
    if (name == nullptr || !name->is_string()) return wrong_event(number, "needs a text args.name");
    if (kind == "process_name") {
      process_names_[track.first] = name->as_string();
    } else {
      track_names_[track] = name->as_string();
    }
    return ok_status();
  }

  Status complete(const Json& json, const TrackKey& track, std::size_t number) {
    const Json *dur = json.find("dur"), *cat = json.find("cat");
    if (dur == nullptr || !usable(*dur) || dur->as_number() < 0) {
      return wrong_event(number, "needs a number dur that is not negative");
    }
    Event event{.number = number, .span = {.name = json.find("name")->as_string()}};
    if (cat != nullptr && cat->is_string())
      event.span.category = category_of(cat->as_string()).value_or(SpanCategory::kCompute);
    constexpr double kOfMicrosecond = 1000.0, kNanosecond = 1e-9;
    const double begin = json.find("ts")->as_number();
    event.begin = std::llround(begin * kOfMicrosecond);
    event.end = std::llround((begin + dur->as_number()) * kOfMicrosecond);
    event.span.begin = {static_cast<double>(event.begin) * kNanosecond};
    event.span.end = {static_cast<double>(event.end) * kNanosecond};
    if (const Json* args = json.find("args")) read_args(*args, event.span);
    tracks_[track].push_back(std::move(event));
    return ok_status();
  }

  static void read_args(const Json& args, Span& span) {
    const auto number = [&](const char* name) {
      const Json* value = args.find(name);
      const bool whole = value != nullptr && value->is_integer() && value->as_integer() >= 0;
      return whole ? value->as_integer() : std::int64_t{-1};
    };
    const auto place = [&](const char* name) {
      const std::int64_t value = number(name);
      return static_cast<std::int32_t>(value <= std::numeric_limits<std::int32_t>::max() ? value : -1);
    };
    span.place = {place("step"), place("unit"), place("micro_batch"), place("chunk")};
    span.bytes = number("bytes");
    const Json* detail = args.find("detail");
    if (detail != nullptr && detail->is_string()) span.detail = detail->as_string();
  }

  // Sorts a track's events, the outer of two first.
  Status check_nesting(std::vector<Event>& events) const {
    std::stable_sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
    });
    std::vector<const Event*> open;
    for (const Event& event : events) {
      while (!open.empty() && open.back()->end <= event.begin) open.pop_back();
      if (!open.empty() && open.back()->end < event.end) {
        return wrong_event(event.number, fmt::format("overlaps event {} of its track", open.back()->number));
      }
      open.push_back(&event);
    }
    return ok_status();
  }

  RankTimeline rank(std::int64_t pid, const std::string& name, const Json& about) const {
    RankTimeline made{.rank = static_cast<int>(pid), .name = name, .host = "", .dropped = 0, .spans = {}};
    for (auto track = tracks_.lower_bound({pid, std::numeric_limits<std::int64_t>::min()});
         track != tracks_.end() && track->first.first == pid; ++track) {
      const std::string& track_name = track_names_.at(track->first);
      for (const Event& event : track->second) {
        made.spans.push_back(event.span);
        // "data (2)" is a second track of the axis data.
        if (track_name != "compute") made.spans.back().track = track_name.substr(0, track_name.find(" ("));
      }
    }
    if (const Json* ranks = about.find("ranks"); ranks != nullptr && ranks->is_array()) {
      for (const Json& one : ranks->as_array()) {
        const Json *number = one.find("rank"), *host = one.find("host"), *dropped = one.find("dropped_spans");
        if (number == nullptr || *number != Json(pid)) continue;
        if (host != nullptr && host->is_string()) made.host = host->as_string();
        if (dropped != nullptr && dropped->is_integer()) made.dropped = dropped->as_integer();
      }
    }
    return made;
  }

  std::string_view what_;
  std::map<std::int64_t, std::string> process_names_;
  std::map<TrackKey, std::string> track_names_;
  std::map<TrackKey, std::vector<Event>> tracks_;
};

}  // namespace

Result<Trace> parse_trace(std::string_view text, std::string_view what) {
  const Result<Json> file = parse_json(text, what);
  if (!file) return file.failure();
  return Reader(what).read(*file);
}

}  // namespace trireme::telemetry
