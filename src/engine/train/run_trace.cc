#include "engine/train/run_trace.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

namespace trireme::train {

void RunTrace::before_step(std::int64_t step) {
  if (timeline() == nullptr) return;
  timeline()->switch_to(step >= run_.config.trace_first && step <= run_.config.trace_last);
  timeline()->set_place({.step = static_cast<std::int32_t>(step)});
}

void RunTrace::after_step(std::int64_t step, Control& control) {
  if (timeline() != nullptr && step == run_.config.trace_last) write(step, control);
}

void RunTrace::end(std::int64_t steps_done, Control& control) {
  if (timeline() == nullptr || steps_done >= run_.config.trace_last) return;
  if (steps_done >= run_.config.trace_first) return write(steps_done, control);
  if (control.leads()) log_.warning("no trace: the run ended before step {}", run_.config.trace_first);
}

telemetry::RankTimeline RunTrace::own_timeline() {
  const int rank = rank_.plan().rank;
  const std::string& host = hosts_[static_cast<std::size_t>(rank)];
  const plan::Coordinates at = plan::coordinates_of(run_.config.layout, rank);
  telemetry::RankTimeline own{.rank = rank,
                              .name = fmt::format("rank {} (dp {}, tp {}, pp {}) {}", rank, at.dp, at.tp, at.pp, host),
                              .host = host,
                              .dropped = timeline()->dropped(),
                              .spans = timeline()->spans()};
  timeline()->release();
  return own;
}

Json RunTrace::about(std::int64_t last_step) const {
  const plan::Layout& layout = run_.config.layout;
  return Json::object({{"program", "trireme"},
                       {"layout", plan::describe(layout)},
                       {"dp", layout.dp},
                       {"tp", layout.tp},
                       {"pp", layout.pp},
                       {"interleave", layout.interleave},
                       {"schedule", std::string(plan::schedule_name(layout.schedule))},
                       {"recompute", std::string(model::recompute_name(layout.recompute))},
                       {"micro_batches", plan::micro_batches(layout, run_.config.batch)},
                       {"layers", run_.plan.table.config.layers},
                       {"first_step", run_.config.trace_first},
                       {"last_step", last_step}});
}

// What all ranks must know to write their parts on one scale.
struct RunTrace::Scale {
  std::vector<telemetry::ClockOffset> clocks;  // by rank
  Seconds origin;
};

RunTrace::Scale RunTrace::agree(Seconds own_begin, Control& control) const {
  Json word = Json::object({{"begin_s", own_begin.count}, {"clocks", Json::array()}});
  for (const telemetry::ClockOffset& clock : control.clocks(hosts_)) {
    word["clocks"].push_back(Json(Json::Array{clock.offset.count, clock.round_trip.count, clock.estimated}));
  }
  std::vector<Json> words;
  for (const std::string& text : control.share(word.dump())) {
    words.push_back(parse_json(text, "the begin of a timeline").or_throw());
  }
  Scale scale{.clocks = {}, .origin = {std::numeric_limits<double>::infinity()}};
  const Json::Array& clocks = words.front().find("clocks")->as_array();  // the leader's
  for (std::size_t rank = 0; rank < words.size(); ++rank) {
    const Json::Array& clock = clocks.at(rank).as_array();
    scale.clocks.push_back({.offset = {clock.at(0).as_number()},
                            .round_trip = {clock.at(1).as_number()},
                            .estimated = clock.at(2).as_bool()});
    const double begin = words[rank].find("begin_s")->as_number() + scale.clocks.back().offset.count;
    scale.origin.count = std::min(scale.origin.count, begin);
  }
  return scale;
}

// Ranks make their parts side by side; the leader only joins them.
void RunTrace::write(std::int64_t last_step, Control& control) {
  const telemetry::RankTimeline own = own_timeline();
  const Scale scale = agree(own.begin(), control);
  const telemetry::TracePart part =
      telemetry::trace_part(own, scale.clocks[static_cast<std::size_t>(own.rank)], scale.origin);
  const std::vector<std::string> texts = control.gather(part.facts.dump() + "\n" + part.events);
  if (!control.leads()) return;
  telemetry::TraceWriter writer(env_, run_.config.trace);
  std::int64_t dropped = 0;
  for (const std::string& text : texts) {
    const std::size_t end = text.find('\n');
    const Json facts = parse_json(std::string_view(text).substr(0, end), "a rank's part of the trace").or_throw();
    writer.add({.events = text.substr(end + 1), .facts = facts});
    dropped += facts.find("dropped_spans")->as_integer();
  }
  writer.close(about(last_step));
  log_.info("trace of steps {} to {}: {}", run_.config.trace_first, last_step, run_.config.trace);
  if (dropped > 0) {
    log_.warning("the trace lacks {} spans of its end: a rank has room for {}; trace fewer steps (out.trace_steps)",
                 dropped, kTimelineSpans);
  }
}

}  // namespace trireme::train
