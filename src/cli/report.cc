#include <algorithm>

#include <fmt/format.h>

#include "cli/commands.h"
#include "report/timeline_svg.h"

namespace trireme::cli {
namespace {

struct Options {
  std::vector<std::string> files;
  std::string out;
  std::int64_t step = 0;
  bool json = false;
};

// The step to draw: the one asked for, else the last.
std::int32_t step_to_draw(const telemetry::Trace& trace, const std::string& file, std::int64_t asked) {
  std::vector<std::int32_t> steps = report::steps_of(trace);
  std::erase_if(steps, [&](std::int32_t step) { return !(report::range_of(trace, step).length() > 0.0); });
  if (steps.empty()) {
    throw Error(Failure{.option = "trace file", .value = file, .rule = "shows no step", .nearest = ""});
  }
  if (asked == 0) return steps.back();
  for (const std::int32_t step : steps) {
    if (step == asked) return step;
  }
  throw Error(Failure{.option = "--step",
                      .value = fmt::format("{}", asked),
                      .rule = fmt::format("{} shows the steps {} to {}", file, steps.front(), steps.back()),
                      .nearest = fmt::format("{}", asked < steps.front() ? steps.front() : steps.back())});
}

report::TracePanel read_panel(Env& env, const std::string& file, std::int64_t step) {
  if (!env.exists(file)) {
    throw Error(Failure{.option = "trace file",
                        .value = file,
                        .rule = "there is no such file",
                        .nearest = "a file that trireme train --trace wrote"});
  }
  report::TracePanel panel{.name = file, .trace = telemetry::parse_trace(env.read_file(file), file).or_throw()};
  panel.step = step_to_draw(panel.trace, file, step);
  return panel;
}

Json panel_json(const report::TracePanel& panel) {
  Json steps = Json::array();
  for (const std::int32_t step : report::steps_of(panel.trace)) {
    const auto bubble = report::bubble_of(panel.trace, step);
    steps.push_back(Json::object({{"step", step},
                                  {"step_s", report::range_of(panel.trace, step).length()},
                                  {"bubble_fraction", bubble ? Json(bubble->fraction()) : Json()}}));
  }
  const auto bubble = report::bubble_of(panel.trace);
  return Json::object({{"file", panel.name},
                       {"title", report::panel_title(panel)},
                       {"ranks", static_cast<std::int64_t>(panel.trace.ranks.size())},
                       {"bubble_fraction", bubble ? Json(bubble->fraction()) : Json()},
                       {"steps", steps}});
}

void print_panel(const report::TracePanel& panel) {
  const auto bubble = report::bubble_of(panel.trace);
  fmt::print("{}: {}{}\n", panel.name, report::panel_title(panel),
             bubble ? fmt::format(", measured bubble {:.1f} %", 100 * bubble->fraction()) : "");
}

ExitCode run_report_trace(Env& env, const Options& options) {
  if (options.out.empty()) {
    throw Error(Failure{.option = "--out", .value = "", .rule = "is needed", .nearest = "--out page.html"});
  }
  if (options.step < 0) {
    throw Error(Failure{
        .option = "--step", .value = fmt::format("{}", options.step), .rule = "steps count from 1", .nearest = "1"});
  }
  std::vector<report::TracePanel> panels;
  for (const std::string& file : options.files) panels.push_back(read_panel(env, file, options.step));
  env.write_file_atomically(options.out, report::timeline_page(panels));
  if (options.json) {
    Json files = Json::array();
    for (const report::TracePanel& panel : panels) files.push_back(panel_json(panel));
    fmt::print("{}\n", Json::object({{"out", options.out}, {"files", files}}).dump(2));
    return ExitCode::kDone;
  }
  for (const report::TracePanel& panel : panels) print_panel(panel);
  fmt::print("{}\n", options.out);
  return ExitCode::kDone;
}

}  // namespace

void declare_report(Command& root, Env& env) {
  Command& report = root.command("report", "Pictures of runs, drawn from their files");
  auto options = std::make_shared<Options>();
  Command& command = report.command("trace", "Traces as a page: a panel for each, a row for each rank");
  command.positionals("files", options->files, "what trireme train --trace wrote");
  command.option("out", options->out, "HTML file to write; it needs no other");
  command.option("step", options->step, "that is drawn; 0: the last of each trace");
  command.flag("json", options->json, "one JSON object on standard output");
  command.examples(
      "  trireme train run.toml --layout.pp 4 --trace 1f1b.json\n"
      "  trireme report trace 1f1b.json zb-h1.json --out page.html");
  command.run([options, &env] { return run_report_trace(env, *options); });
}

}  // namespace trireme::cli
