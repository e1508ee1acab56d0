#pragma once

// incidents.jsonl of a run directory: what went wrong, and what it cost. Two lines for each: "failure" when it is
// known, "recovery" when the run has come further than it ever was (or is at its end). docs/formats/incidents.md.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/env.h"
#include "base/error.h"
#include "base/json.h"

namespace trireme::supervisor {

enum class FailureKind {
  kDied,        // a process ended by a signal or without a word
  kFailed,      // a rank said why it ended
  kHung,        // nothing advanced
  kHostLost,    // a host is silent, or its keepers are gone
  kSlow,        // a straggler
  kNotStarted,  // the launcher ended, or too much time passed, before all ranks were there
  kSupervisor,  // the supervisor before this one was lost
};
std::string_view failure_name(FailureKind kind);  // "died"
std::optional<FailureKind> failure_of(std::string_view name);

struct Incident {
  FailureKind kind = FailureKind::kDied;
  std::int64_t incarnation = 0;
  std::vector<int> ranks = {};  // at fault, ascending; empty: not known
  std::string host = {};        // of them; "": several or not known
  std::int64_t step = 0;        // at hand
  std::string phase = {};       // "backward"; "": not known
  int signal = 0;
  int code = 0;                 // exit code of the rank, where it said one
  double detected_after_s = 0;  // since the last sign that the ranks at fault got on
  std::string message = {};     // a sentence for people
  std::string action = {};      // "restart", "leave out b", "spare d for b", "end"
  std::string layout_before = {};
  std::string wall_time = {};
  friend bool operator==(const Incident&, const Incident&) = default;
};

struct Recovery {
  std::int64_t incarnation = 0;  // the new one
  std::int64_t of_incarnation = 0;
  std::int64_t steps_lost = 0;  // completed before, done again
  // From detection to the next step that was never completed before; they add up.
  double end_s = 0;     // until no process of the old incarnation was left
  double wait_s = 0;    // backoff
  double launch_s = 0;  // until all ranks were connected
  double load_s = 0;    // until the run had its state
  double repeat_s = 0;  // steps done again
  double next_s = 0;    // the next step
  double total_s() const { return end_s + wait_s + launch_s + load_s + repeat_s + next_s; }
  std::string layout_before = {};
  std::string layout_after = {};
  std::string wall_time = {};
  friend bool operator==(const Recovery&, const Recovery&) = default;
};

// "event" is "failure" or "recovery", and the members above; of a recovery "total_s" too.
Json to_json(const Incident& incident);
Json to_json(const Recovery& recovery);
// Refused: another event, missing or wrong members. Unknown further members are passed over.
Result<Incident> incident_from_json(const Json& json);
Result<Recovery> recovery_from_json(const Json& json);

std::string incidents_of(const std::string& out);  // incidents.jsonl of a run directory
// Appends one line, whole and durable, unless it is the last one already: an attempt that failed may be made again. A
// last line that was cut off is dropped first.
void append_incident(Env& env, const std::string& out, const Json& line);
// All lines, in their order; no file: none. A last line that was cut off is passed over; any other that is none of the
// two is refused, by its number.
using IncidentLine = std::variant<Incident, Recovery>;
Result<std::vector<IncidentLine>> read_incidents(Env& env, const std::string& out);

}  // namespace trireme::supervisor
