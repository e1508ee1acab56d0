#pragma once

// Traces of runs as one page: a panel for each, its ranks as rows, on one scale of time, so that they compare.

#include <cstdint>
#include <span>
#include <string>

#include "report/timeline.h"

namespace trireme::report {

struct TracePanel {
  std::string name;        // of the file
  telemetry::Trace trace;  // with spans of the step (CHECK)
  std::int32_t step = 0;   // that is drawn
};

// "1f1b, pp 4, 8 micro-batches", as far as the trace says; else the file's name.
std::string panel_title(const TracePanel& panel);

// The drawing of one panel, an <svg> element. scale: seconds of the whole width.
std::string timeline_svg(const TracePanel& panel, Seconds scale);

// A whole HTML page that needs nothing else, readable in light and dark.
std::string timeline_page(std::span<const TracePanel> panels);

}  // namespace trireme::report
