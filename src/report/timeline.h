#pragma once

// What a trace of a run says of its steps: the spans that a picture shows, and the measured bubble.

#include <optional>
#include <string_view>
#include <vector>

#include "telemetry/trace.h"

namespace trireme::report {

enum class Work { kForward, kBackwardInput, kBackwardWeight, kRecompute, kUpdate, kCommunication, kWaiting };
inline constexpr int kWorks = 7;
std::string_view work_name(Work work);  // "forward", "backward, input", ...
// Of what a span shows; none for what takes no time to speak of (memory, the step's own frame).
std::optional<Work> work_of(const telemetry::Span& span);

// The steps that have spans, ascending.
std::vector<std::int32_t> steps_of(const telemetry::Trace& trace);

struct TimeRange {
  Seconds begin = {};
  Seconds end = {};
  double length() const { return end.count - begin.count; }
};
// From a step's first span to its last, on all ranks.
TimeRange range_of(const telemetry::Trace& trace, std::int32_t step);

// Over all ranks, from the first forward of a step to the end of its last backward: the share of the time in which they
// did not compute for a micro-batch. What they wait for within an instruction is not computing.
struct Bubble {
  Seconds busy = {};       // of all ranks together
  Seconds available = {};  // ranks x the step's window
  double fraction() const { return 1.0 - busy.count / available.count; }
};
// None where the step has no forward or no backward.
std::optional<Bubble> bubble_of(const telemetry::Trace& trace, std::int32_t step);
// Of all steps together.
std::optional<Bubble> bubble_of(const telemetry::Trace& trace);

}  // namespace trireme::report
