#include "report/timeline_svg.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/check.h"

namespace trireme::report {
namespace {

using telemetry::RankTimeline;
using telemetry::Span;

// Units of the drawing; the page scales it to its column.
constexpr double kGutter = 52;   // left, for the ranks' names
constexpr double kWidth = 940;   // of the scale
constexpr double kMargin = 8;    // right
constexpr double kRow = 24;      // what a rank does
constexpr double kStrip = 5;     // below it, for each axis, what is under way
constexpr double kGap = 7;       // between ranks
constexpr double kAxis = 24;     // below all, the time
constexpr double kLeast = 0.12;  // narrower is not drawn
constexpr double kDigit = 6.2;   // of a number in a box

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else {
      out += c;
    }
  }
  return out;
}

constexpr const char* kClasses[kWorks] = {"f", "i", "w", "r", "u", "c", "q"};

constexpr bool is_computing(Work work) { return work < Work::kUpdate; }  // for a micro-batch

// One box: spans of one kind of work, one micro-batch and chunk, that follow each other closely.
struct Box {
  Work work = Work::kForward;
  const Span* first = nullptr;
  const Span* last = nullptr;
  double begin = 0;  // in units from the left end of the scale
  double end = 0;
};

class Drawing {
 public:
  Drawing(const TracePanel& panel, Seconds scale)
      : panel_(panel), range_(range_of(panel.trace, panel.step)), per_second_(kWidth / scale.count) {}

  std::string draw() {
    double y = 0;
    for (const RankTimeline& rank : panel_.trace.ranks) y = draw_rank(rank, y) + kGap;
    text_.insert(0, axis(y));  // behind the rows
    const double width = kGutter + kWidth + kMargin, height = y + kAxis;
    return fmt::format("<svg viewBox=\"0 0 {} {:.0f}\" role=\"img\" aria-label=\"{}\">\n{}</svg>\n", width, height,
                       escaped("timeline of " + panel_title(panel_)), text_);
  }

 private:
  double draw_rank(const RankTimeline& rank, double y) {
    text_ += fmt::format("<text class=\"n\" x=\"{}\" y=\"{:.1f}\"><title>{}</title>rank {}</text>\n", kGutter - 8,
                         y + kRow / 2 + 4, escaped(rank.name), rank.rank);
    std::vector<Box> work, waits;
    std::map<std::string, std::vector<Box>> axes;
    for (const Span& span : rank.spans) {
      if (span.place.step != panel_.step) continue;
      const std::optional<Work> kind = work_of(span);
      if (!kind) continue;
      if (!span.track.empty()) {
        add(axes[span.track], *kind, span);
      } else {
        add(*kind == Work::kWaiting ? waits : work, *kind, span);
      }
    }
    draw_frame(y, kRow);
    draw_boxes(work, y, kRow);
    draw_boxes(waits, y, kRow);  // within what they hold up
    draw_numbers(work, y);
    y += kRow;
    for (const auto& [axis, boxes] : axes) {
      y += 1;
      draw_boxes(boxes, y, kStrip - 1);
      y += kStrip - 1;
    }
    return y;
  }

  double at(Seconds time) const { return (time.count - range_.begin.count) * per_second_; }

  void add(std::vector<Box>& boxes, Work work, const Span& span) const {
    const double begin = at(span.begin), end = at(span.end);
    if (!boxes.empty()) {
      Box& last = boxes.back();
      const bool same = last.work == work && last.first->place.micro_batch == span.place.micro_batch &&
                        last.first->place.chunk == span.place.chunk && last.first->name == span.name;
      if (same && begin - last.end < kLeast) {
        last.last = &span;
        last.end = std::max(last.end, end);
        return;
      }
    }
    boxes.push_back({work, &span, &span, begin, end});
  }

  void draw_frame(double y, double height) {
    text_ += fmt::format("<rect class=\"b\" x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{}\"/>\n", kGutter, y,
                         range_.length() * per_second_, height);
  }

  void draw_boxes(const std::vector<Box>& boxes, double y, double height) {
    for (const Box& box : boxes) {
      if (box.end - box.begin < kLeast) continue;
      const bool odd = is_computing(box.work) && box.first->place.chunk % 2 == 1;
      text_ += fmt::format(
          "<rect class=\"{}{}\" x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{}\"><title>{}</title></rect>\n",
          kClasses[static_cast<std::size_t>(box.work)], odd ? " o" : "", kGutter + box.begin, y, box.end - box.begin,
          height, escaped(describe(box)));
    }
  }

  std::string describe(const Box& box) const {
    const telemetry::SpanPlace &first = box.first->place, &last = box.last->place;
    std::string text = box.first->name;
    if (!box.first->track.empty()) text += " over the " + box.first->track + " axis";
    if (first.micro_batch >= 0) text += fmt::format(", micro-batch {}", first.micro_batch);
    if (first.chunk > 0) text += fmt::format(", chunk {}", first.chunk);
    if (first.unit >= 0 && first.unit == last.unit) text += fmt::format(", unit {}", first.unit);
    if (first.unit >= 0 && first.unit != last.unit) text += fmt::format(", units {} to {}", first.unit, last.unit);
    if (box.first == box.last && box.first->bytes >= 0) text += ", " + format_bytes(Bytes{box.first->bytes});
    return text + fmt::format(": {:.3f} ms", (box.end - box.begin) / per_second_ * 1e3);
  }

  // A micro-batch's number in the middle of its forward, and of its backward with all that belongs to it.
  void draw_numbers(const std::vector<Box>& boxes, double y) {
    const auto backward = [](const Box& box) { return box.work != Work::kForward; };
    const auto bears_one = [](const Box& box) { return is_computing(box.work) && box.first->place.micro_batch >= 0; };
    for (std::size_t i = 0; i < boxes.size();) {
      std::size_t next = i + 1;
      const Box& box = boxes[i];
      while (next < boxes.size() && bears_one(boxes[next]) && backward(boxes[next]) == backward(box) &&
             boxes[next].first->place.micro_batch == box.first->place.micro_batch &&
             boxes[next].first->place.chunk == box.first->place.chunk &&
             boxes[next].begin - boxes[next - 1].end < kDigit) {
        ++next;
      }
      const double end = boxes[next - 1].end;
      const std::string number = fmt::format("{}", box.first->place.micro_batch);
      if (bears_one(box) && end - box.begin > kDigit * static_cast<double>(number.size()) + 1) {
        text_ += fmt::format("<text class=\"m\" x=\"{:.2f}\" y=\"{:.1f}\">{}</text>\n", kGutter + (box.begin + end) / 2,
                             y + kRow / 2 + 3.5, number);
      }
      i = next;
    }
  }

  std::string axis(double y) const {
    const double seconds = kWidth / per_second_;
    const double rough = seconds / 8;
    const double power = std::pow(10.0, std::floor(std::log10(rough)));
    const double tick = rough / power > 5 ? 10 * power : rough / power > 2 ? 5 * power : 2 * power;
    const bool milli = tick < 1.0;
    std::string text;
    for (int i = 0; i * tick <= seconds * 1.0001; ++i) {
      const double x = kGutter + i * tick * per_second_;
      text += fmt::format(
          "<path class=\"a\" d=\"M{0:.2f} 0V{1:.1f}\"/><text class=\"t\" x=\"{0:.2f}\" "
          "y=\"{2:.1f}\">{3:.6g}{4}</text>\n",
          x, y, y + 13, i * tick * (milli ? 1e3 : 1.0), i == 0 ? (milli ? " ms" : " s") : "");
    }
    return text;
  }

  const TracePanel& panel_;
  const TimeRange range_;
  const double per_second_;
  std::string text_;
};

constexpr const char* kStyle = R"(:root{color-scheme:light dark;--page:#fff;--ink:#1c2128;--soft:#5b6470;--row:#f1f3f5;
--line:#d5dae0;--wait:#d3d8de}
@media(prefers-color-scheme:dark){:root{--page:#14181d;--ink:#e4e8ec;--soft:#98a2ad;--row:#20262d;--line:#39424c;
--wait:#444e59}}
*{box-sizing:border-box}
body{margin:0;padding:20px 24px;background:var(--page);color:var(--ink);font:14px/1.45 system-ui,sans-serif}
h1{font-size:19px;margin:0 0 4px}h2{font-size:15px;margin:0}
p{margin:2px 0 8px;color:var(--soft)}
main{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,680px),1fr));gap:22px 28px;margin-top:16px}
svg{display:block;width:100%;height:auto;overflow:visible}
ul{display:flex;flex-wrap:wrap;gap:4px 18px;padding:0;margin:8px 0 0;list-style:none}
li svg{display:inline-block;width:14px;height:14px;vertical-align:-2px;margin-right:6px}
.f{fill:#2e6fd0}.i{fill:#12906b}.w{fill:#e0901a}.r{fill:#a55cc4}.u{fill:#d1495b}.c{fill:#27a9c4}.q{fill:var(--wait)}
.b{fill:var(--row)}.o{fill-opacity:.7}.a{stroke:var(--line);stroke-width:.6;fill:none}
text{font-family:system-ui,sans-serif;fill:var(--soft);font-size:11px}
.n{text-anchor:end;font-size:12px;fill:var(--ink)}.t{text-anchor:middle}
.m{text-anchor:middle;fill:#fff;font-size:10.5px;font-weight:600;paint-order:stroke;stroke:#0009;stroke-width:2px;
stroke-linejoin:round;pointer-events:none}
)";

const Json* fact(const TracePanel& panel, std::string_view name) { return panel.trace.about.find(name); }

std::string facts_of(const TracePanel& panel) {
  const std::vector<std::int32_t> steps = steps_of(panel.trace);
  const TimeRange range = range_of(panel.trace, panel.step);
  std::string text = fmt::format("step {}: {:.2f} ms", panel.step, range.length() * 1e3);
  if (const auto bubble = bubble_of(panel.trace, panel.step); bubble && steps.size() > 1) {
    text += fmt::format(", bubble {:.1f} %", 100 * bubble->fraction());
  }
  if (steps.size() > 1) text += fmt::format(" (the title's is of steps {} to {})", steps.front(), steps.back());
  std::int64_t dropped = 0;
  for (const RankTimeline& rank : panel.trace.ranks) dropped += rank.dropped;
  if (dropped > 0) text += fmt::format("; {} spans were dropped", dropped);
  return text + "; " + panel.name;
}

}  // namespace

std::string panel_title(const TracePanel& panel) {
  const Json *schedule = fact(panel, "schedule"), *recompute = fact(panel, "recompute");
  const auto number = [&](const char* name) {
    const Json* value = fact(panel, name);
    return value != nullptr && value->is_integer() ? value->as_integer() : 0;
  };
  if (schedule == nullptr || !schedule->is_string()) return panel.name;
  std::string text = schedule->as_string();
  if (number("interleave") > 1) text += fmt::format(" x {}", number("interleave"));
  for (const char* degree : {"dp", "tp", "pp"}) {
    if (number(degree) > 1) text += fmt::format(", {} {}", degree, number(degree));
  }
  if (number("micro_batches") > 0) text += fmt::format(", {} micro-batches", number("micro_batches"));
  if (recompute != nullptr && recompute->is_string() && recompute->as_string() != "none") {
    text += ", recompute " + recompute->as_string();
  }
  return text;
}

std::string timeline_svg(const TracePanel& panel, Seconds scale) {
  TRIREME_CHECK(range_of(panel.trace, panel.step).length() > 0, "nothing of step {} to draw", panel.step);
  return Drawing(panel, scale).draw();
}

std::string timeline_page(std::span<const TracePanel> panels) {
  Seconds scale;
  bool used[kWorks] = {};
  bool chunks = false;
  std::set<std::string> axes;
  for (const TracePanel& panel : panels) {
    scale = std::max(scale, Seconds{range_of(panel.trace, panel.step).length()});
    for (const RankTimeline& rank : panel.trace.ranks) {
      for (const Span& span : rank.spans) {
        if (const auto work = work_of(span)) used[static_cast<std::size_t>(*work)] = true;
        if (!span.track.empty()) axes.insert(span.track);
        chunks = chunks || span.place.chunk > 0;
      }
    }
  }
  std::string page = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width\"><title>Timelines</title>\n<style>\n{}</style></head><body>\n"
      "<h1>Timelines of a training step</h1>\n<p>A row is a rank{}. Numbers are micro-batches{}. All panels have one "
      "scale.</p>\n<ul>\n",
      kStyle,
      axes.empty() ? "" : escaped(fmt::format("; below it what is under way over an axis ({})", fmt::join(axes, ", "))),
      chunks ? "; every second chunk is fainter" : "");
  for (int i = 0; i < kWorks; ++i) {
    if (!used[i]) continue;
    page += fmt::format("<li><svg viewBox=\"0 0 14 14\"><rect class=\"{}\" width=\"14\" height=\"14\"/></svg>{}</li>\n",
                        kClasses[i], work_name(static_cast<Work>(i)));
  }
  page += "</ul>\n<main>\n";
  for (const TracePanel& panel : panels) {
    const std::optional<Bubble> bubble = bubble_of(panel.trace);
    const std::string measured = bubble ? fmt::format(": measured bubble {:.1f} %", 100 * bubble->fraction()) : "";
    page += fmt::format("<section><h2>{}{}</h2><p>{}</p>\n{}</section>\n", escaped(panel_title(panel)), measured,
                        escaped(facts_of(panel)), timeline_svg(panel, scale));
  }
  return page + "</main></body></html>\n";
}

}  // namespace trireme::report
