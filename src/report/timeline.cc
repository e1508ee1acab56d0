#include "report/timeline.h"

#include <algorithm>
#include <limits>
#include <set>

namespace trireme::report {

using telemetry::Span;
using telemetry::SpanCategory;
using telemetry::Trace;

std::string_view work_name(Work work) {
  constexpr std::string_view kNames[] = {"forward", "backward, input", "backward, weight", "recompute",
                                         "update",  "communication",   "waiting"};
  return kNames[static_cast<std::size_t>(work)];
}

std::optional<Work> work_of(const Span& span) {
  if (span.category == SpanCategory::kWaiting) return Work::kWaiting;
  if (span.category == SpanCategory::kCommunication) return Work::kCommunication;
  if (span.name == "forward") return Work::kForward;
  if (span.name == "backward input") return Work::kBackwardInput;
  if (span.name == "backward weight") return Work::kBackwardWeight;
  if (span.name == "recompute") return Work::kRecompute;
  if (span.name == "update") return Work::kUpdate;
  return std::nullopt;
}

std::vector<std::int32_t> steps_of(const Trace& trace) {
  std::set<std::int32_t> steps;
  for (const auto& rank : trace.ranks) {
    for (const Span& span : rank.spans) {
      if (span.place.step >= 0) steps.insert(span.place.step);
    }
  }
  return {steps.begin(), steps.end()};
}

namespace {

constexpr TimeRange kNothing{.begin = {std::numeric_limits<double>::infinity()},
                             .end = {-std::numeric_limits<double>::infinity()}};

void widen(TimeRange& range, const Span& span) {
  range.begin = std::min(range.begin, span.begin);
  range.end = std::max(range.end, span.end);
}

double part_within(const Span& span, const TimeRange& range) {
  return std::max(0.0, std::min(span.end, range.end).count - std::max(span.begin, range.begin).count);
}

// Of one rank, whose spans are sorted, the outer of two first.
double busy_within(const std::vector<Span>& spans, std::int32_t step, const TimeRange& window) {
  double busy = 0.0;
  double computes_until = -std::numeric_limits<double>::infinity();
  for (const Span& span : spans) {
    if (!span.track.empty() || span.place.step != step) continue;
    if (span.category == SpanCategory::kWaiting) {
      if (span.begin.count < computes_until) busy -= part_within(span, window);
    } else if (span.category == SpanCategory::kCompute && span.place.micro_batch >= 0) {
      busy += part_within(span, window);
      computes_until = span.end.count;
    }
  }
  return busy;
}

}  // namespace

TimeRange range_of(const Trace& trace, std::int32_t step) {
  TimeRange range = kNothing;
  for (const auto& rank : trace.ranks) {
    for (const Span& span : rank.spans) {
      if (span.place.step == step) widen(range, span);
    }
  }
  return range.end < range.begin ? TimeRange{} : range;
}

std::optional<Bubble> bubble_of(const Trace& trace, std::int32_t step) {
  TimeRange forwards = kNothing, backwards = kNothing;
  for (const auto& rank : trace.ranks) {
    for (const Span& span : rank.spans) {
      if (span.place.step != step || !span.track.empty()) continue;
      const std::optional<Work> work = work_of(span);
      if (work == Work::kForward) widen(forwards, span);
      if (work == Work::kBackwardInput || work == Work::kBackwardWeight) widen(backwards, span);
    }
  }
  const TimeRange window{forwards.begin, backwards.end};
  if (!(window.length() > 0.0)) return std::nullopt;
  Bubble bubble;
  for (const auto& rank : trace.ranks) {
    bubble.busy.count += busy_within(rank.spans, step, window);
    bubble.available.count += window.length();
  }
  return bubble;
}

std::optional<Bubble> bubble_of(const Trace& trace) {
  Bubble sum;
  for (const std::int32_t step : steps_of(trace)) {
    if (const std::optional<Bubble> bubble = bubble_of(trace, step)) {
      sum.busy.count += bubble->busy.count;
      sum.available.count += bubble->available.count;
    }
  }
  return sum.available.count > 0.0 ? std::optional(sum) : std::nullopt;
}

}  // namespace trireme::report
