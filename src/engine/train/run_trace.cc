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

telemetry::RankTimeline RunTrace::own_part() {
  const int rank = rank_.plan().rank;
  const std::string& host = hosts_[static_cast<std::size_t>(rank)];
  const plan::Coordinates at = plan::coordinates_of(run_.config.layout, rank);
  telemetry::RankTimeline part{.rank = rank,
                               .name = fmt::format("rank {} (dp {}, tp {}, pp {}) {}", rank, at.dp, at.tp, at.pp, host),
                               .host = host,
                               .dropped = timeline()->dropped(),
                               .spans = timeline()->spans()};
  timeline()->release();
  return part;
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

void RunTrace::write(std::int64_t last_step, Control& control) {
  const std::vector<telemetry::ClockOffset> clocks = control.clocks(hosts_);
  const std::vector<std::string> texts = control.gather(to_text(own_part()));
  if (!control.leads()) return;
  double origin = std::numeric_limits<double>::infinity();
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    origin = std::min(origin, telemetry::begin_of_text(texts[rank]).count + clocks[rank].offset.count);
  }
  telemetry::TraceWriter writer(env_, run_.config.trace, about(last_step), Seconds{origin});
  std::int64_t dropped = 0;
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    const telemetry::RankTimeline part = telemetry::rank_timeline_from_text(texts[rank]);
    writer.add(part, clocks[rank]);
    dropped += part.dropped;
  }
  writer.close();
  log_.info("trace of steps {} to {}: {}", run_.config.trace_first, last_step, run_.config.trace);
  if (dropped > 0) {
    log_.warning("the trace lacks {} spans of its end: a rank has room for {}; trace fewer steps (out.trace_steps)",
                 dropped, kTimelineSpans);
  }
}

}  // namespace trireme::train
