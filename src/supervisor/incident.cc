#include "supervisor/incident.h"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"

namespace trireme::supervisor {
namespace {

constexpr const char* kFile = "incidents.jsonl";
constexpr const char* kFailure = "failure";
constexpr const char* kRecovery = "recovery";
constexpr std::int64_t kMostRank = std::int64_t{1} << 20;

constexpr std::array<std::pair<FailureKind, std::string_view>, 7> kNames{{{FailureKind::kDied, "died"},
                                                                          {FailureKind::kFailed, "failed"},
                                                                          {FailureKind::kHung, "hung"},
                                                                          {FailureKind::kHostLost, "host_lost"},
                                                                          {FailureKind::kSlow, "slow"},
                                                                          {FailureKind::kNotStarted, "not_started"},
                                                                          {FailureKind::kSupervisor, "supervisor"}}};

// Reads members of one line; keeps the first that is missing or of another type.
class Members {
 public:
  explicit Members(const Json& line) : line_(line) {}

  void read(const char* key, std::string& out) {
    if (const Json* value = find(key, &Json::is_string, "a text")) out = value->as_string();
  }
  void read(const char* key, std::int64_t& out) {
    if (const Json* value = find(key, &Json::is_integer, "an integer")) out = value->as_integer();
  }
  void read(const char* key, int& out) {
    std::int64_t wide = 0;
    read(key, wide);
    out = static_cast<int>(wide);
    if (out != wide) refuse(key, "must be an integer of 32 bits");
  }
  void read(const char* key, double& out) {
    if (const Json* value = find(key, &Json::is_number, "a number")) out = value->as_number();
  }
  void read_ranks(const char* key, std::vector<int>& out) {
    const Json* value = find(key, &Json::is_array, "a list");
    if (value == nullptr) return;
    for (const Json& rank : value->as_array()) {
      if (!rank.is_integer() || rank.as_integer() < 0 || rank.as_integer() > kMostRank) {
        return refuse(key, fmt::format("must be ranks from 0 to {}", kMostRank));
      }
      out.push_back(static_cast<int>(rank.as_integer()));
    }
  }
  void expect_event(const char* event) {
    std::string found;
    read("event", found);
    if (found != event) refuse("event", fmt::format("must be \"{}\"", event));
  }
  void refuse(const char* key, std::string rule) {
    if (refusal_) return;
    const Json* value = line_.find(key);
    refusal_ = Failure{key, value == nullptr ? "" : value->dump(), std::move(rule), ""};
  }

  template <class T>
  Result<T> result(T value) const {
    if (refusal_) return *refusal_;
    return value;
  }

 private:
  const Json* find(const char* key, bool (Json::*is_right)() const, const char* type) {
    const Json* value = line_.find(key);
    if (value != nullptr && (value->*is_right)()) return value;
    refuse(key, value == nullptr ? "is missing" : fmt::format("must be {}", type));
    return nullptr;
  }

  const Json& line_;
  std::optional<Failure> refusal_;
};

Result<IncidentLine> line_from_text(std::string_view text) {
  const Result<Json> json = parse_json(text, kFile);
  if (!json) return json.failure();
  const Json* event = json->find("event");
  if (event != nullptr && *event == Json(kRecovery)) {
    Result<Recovery> recovery = recovery_from_json(*json);
    if (!recovery) return recovery.failure();
    return IncidentLine(*std::move(recovery));
  }
  Result<Incident> incident = incident_from_json(*json);
  if (!incident) return incident.failure();
  return IncidentLine(*std::move(incident));
}

// Where a last line begins that is not whole: it has no end, or is no JSON (a disk may have the end of a write without
// its middle). The size if there is none such.
std::size_t whole_size(std::string_view text) {
  if (text.empty()) return 0;
  const std::size_t before = text.size() < 2 ? std::string_view::npos : text.find_last_of('\n', text.size() - 2);
  const std::size_t begin = before == std::string_view::npos ? 0 : before + 1;
  const bool whole = text.back() == '\n' && parse_json(text.substr(begin), kFile).ok();
  return whole ? text.size() : begin;
}

}  // namespace

std::string_view failure_name(FailureKind kind) {
  const auto* const found = std::ranges::find(kNames, kind, &std::pair<FailureKind, std::string_view>::first);
  TRIREME_CHECK(found != kNames.end(), "failure kind {}", static_cast<int>(kind));
  return found->second;
}

std::optional<FailureKind> failure_of(std::string_view name) {
  const auto* const found = std::ranges::find(kNames, name, &std::pair<FailureKind, std::string_view>::second);
  if (found == kNames.end()) return std::nullopt;
  return found->first;
}

Json to_json(const Incident& incident) {
  Json ranks = Json::array();
  for (const int rank : incident.ranks) ranks.push_back(rank);
  return Json::object({{"event", kFailure},
                       {"kind", failure_name(incident.kind)},
                       {"incarnation", incident.incarnation},
                       {"ranks", ranks},
                       {"host", incident.host},
                       {"step", incident.step},
                       {"phase", incident.phase},
                       {"signal", incident.signal},
                       {"code", incident.code},
                       {"detected_after_s", incident.detected_after_s},
                       {"message", incident.message},
                       {"action", incident.action},
                       {"layout_before", incident.layout_before},
                       {"wall_time", incident.wall_time}});
}

Json to_json(const Recovery& recovery) {
  return Json::object({{"event", kRecovery},
                       {"incarnation", recovery.incarnation},
                       {"of_incarnation", recovery.of_incarnation},
                       {"steps_lost", recovery.steps_lost},
                       {"end_s", recovery.end_s},
                       {"wait_s", recovery.wait_s},
                       {"launch_s", recovery.launch_s},
                       {"load_s", recovery.load_s},
                       {"repeat_s", recovery.repeat_s},
                       {"next_s", recovery.next_s},
                       {"total_s", recovery.total_s()},
                       {"layout_before", recovery.layout_before},
                       {"layout_after", recovery.layout_after},
                       {"wall_time", recovery.wall_time}});
}

Result<Incident> incident_from_json(const Json& json) {
  Members members(json);
  Incident incident;
  std::string kind;
  members.expect_event(kFailure);
  members.read("kind", kind);
  if (const std::optional<FailureKind> known = failure_of(kind)) {
    incident.kind = *known;
  } else {
    members.refuse("kind", "is none of a failure");
  }
  members.read("incarnation", incident.incarnation);
  members.read_ranks("ranks", incident.ranks);
  members.read("host", incident.host);
  members.read("step", incident.step);
  members.read("phase", incident.phase);
  members.read("signal", incident.signal);
  members.read("code", incident.code);
  members.read("detected_after_s", incident.detected_after_s);
  members.read("message", incident.message);
  members.read("action", incident.action);
  members.read("layout_before", incident.layout_before);
  members.read("wall_time", incident.wall_time);
  return members.result(std::move(incident));
}

Result<Recovery> recovery_from_json(const Json& json) {
  Members members(json);
  Recovery recovery;
  members.expect_event(kRecovery);
  members.read("incarnation", recovery.incarnation);
  members.read("of_incarnation", recovery.of_incarnation);
  members.read("steps_lost", recovery.steps_lost);
  members.read("end_s", recovery.end_s);
  members.read("wait_s", recovery.wait_s);
  members.read("launch_s", recovery.launch_s);
  members.read("load_s", recovery.load_s);
  members.read("repeat_s", recovery.repeat_s);
  members.read("next_s", recovery.next_s);
  members.read("layout_before", recovery.layout_before);
  members.read("layout_after", recovery.layout_after);
  members.read("wall_time", recovery.wall_time);
  return members.result(std::move(recovery));
}

std::string incidents_of(const std::string& out) { return join_path(out, kFile); }

void append_incident(Env& env, const std::string& out, const Json& line) {
  const std::string path = incidents_of(out);
  const std::string text = line.dump() + "\n";
  bool is_there = false;  // of an attempt whose end failed
  if (env.exists(path)) {
    const std::string before = env.read_file(path);
    const std::size_t whole = whole_size(before);
    is_there = before == text || before.ends_with("\n" + text);
    if (whole < before.size()) return env.write_file_atomically(path, before.substr(0, whole) + text);
  }
  const std::unique_ptr<Writer> file = env.append_file(path);
  if (!is_there) file->write_text(text);
  file->sync();
  file->close();
  env.sync_directory(out);
}

Result<std::vector<IncidentLine>> read_incidents(Env& env, const std::string& out) {
  const std::string path = incidents_of(out);
  std::vector<IncidentLine> lines;
  if (!env.exists(path)) return lines;
  const std::string text = env.read_file(path);
  const std::size_t size = whole_size(text);
  for (std::size_t begin = 0; begin < size;) {
    const std::size_t end = text.find('\n', begin);
    Result<IncidentLine> line = line_from_text(std::string_view(text).substr(begin, end - begin));
    if (!line) {
      return Failure{path, "", fmt::format("line {}: {}", lines.size() + 1, line.failure().sentence()), ""};
    }
    lines.push_back(*std::move(line));
    begin = end + 1;
  }
  return lines;
}

}  // namespace trireme::supervisor
