#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "base/words.h"
#include "cli/plan_commands.h"
#include "cli/plan_values.h"
#include "plan/checkpoint_interval.h"
#include "report/plot.h"

namespace trireme::cli {
namespace {

using plan::FailureModel;
using plan::Waste;

struct Options {
  std::string cost, mtbf, restart, interval, step;
  bool plot = false;
  bool json = false;
};

struct Question {
  FailureModel model;
  std::vector<Seconds> intervals;
  Seconds step;
};

// Intervals that people use, and their names under the axis.
struct RoundTime {
  double seconds;
  const char* text;
};
constexpr double kMinute = 60;
constexpr double kHour = 3600;
constexpr double kDay = 86400;
constexpr std::array<RoundTime, 27> kRoundTimes{{{0.1, "0.1s"},
                                                 {0.2, "0.2s"},
                                                 {0.5, "0.5s"},
                                                 {1, "1s"},
                                                 {2, "2s"},
                                                 {5, "5s"},
                                                 {10, "10s"},
                                                 {15, "15s"},
                                                 {30, "30s"},
                                                 {kMinute, "1min"},
                                                 {2 * kMinute, "2min"},
                                                 {5 * kMinute, "5min"},
                                                 {10 * kMinute, "10min"},
                                                 {15 * kMinute, "15min"},
                                                 {30 * kMinute, "30min"},
                                                 {kHour, "1h"},
                                                 {2 * kHour, "2h"},
                                                 {4 * kHour, "4h"},
                                                 {8 * kHour, "8h"},
                                                 {16 * kHour, "16h"},
                                                 {kDay, "1d"},
                                                 {2 * kDay, "2d"},
                                                 {4 * kDay, "4d"},
                                                 {7 * kDay, "7d"},
                                                 {14 * kDay, "14d"},
                                                 {30 * kDay, "30d"},
                                                 {60 * kDay, "60d"}}};

// The largest round time up to `most`, for the sweep; `most` itself below all of them.
Seconds round_step(double most) {
  Seconds step{most};
  for (const RoundTime& time : kRoundTimes) {
    if (time.seconds <= most) step = {time.seconds};
  }
  return step;
}

// Round times within `kSpan` times of Young's interval either way; simple multiples of it where there is none.
constexpr double kSpan = 9;
std::vector<Seconds> sensible_intervals(const FailureModel& model) {
  const double young = plan::young_interval(model).count;
  std::vector<Seconds> intervals;
  for (const RoundTime& time : kRoundTimes) {
    if (time.seconds >= young / kSpan && time.seconds <= young * kSpan) intervals.push_back({time.seconds});
  }
  if (!intervals.empty()) return intervals;
  for (double factor : {0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0}) intervals.push_back({factor * young});
  return intervals;
}

std::vector<Seconds> read_intervals(const std::string& list) {
  std::vector<Seconds> intervals;
  for (const std::string_view part : split(list, ',')) {
    const std::string item(part);
    if (item.empty()) refuse("--interval", list, "has an empty entry", "write it like --interval 15min,60min,4h");
    intervals.push_back(positive_seconds("--interval", item, "15min,60min,4h"));
  }
  return intervals;
}

Question read(const Options& options) {
  Question question;
  question.model.cost = positive_seconds("--cost", options.cost, "3min");
  question.model.mtbf = positive_seconds("--mtbf", options.mtbf, "50h");
  question.model.restart = seconds_or_zero("--restart", options.restart);
  question.intervals = options.interval.empty() ? sensible_intervals(question.model) : read_intervals(options.interval);
  question.step = options.step.empty() ? round_step(plan::young_interval(question.model).count / 20)
                                       : positive_seconds("--step", options.step, "5min");
  return question;
}

Json to_json(const Question& question) {
  const FailureModel& model = question.model;
  Json intervals = Json::array();
  for (Seconds interval : question.intervals) {
    const Waste waste = plan::waste_at(model, interval);
    intervals.push_back(Json::object({{"interval_s", interval.count},
                                      {"checkpoint_fraction", waste.checkpoint_fraction},
                                      {"lost_fraction", waste.lost_fraction},
                                      {"waste_fraction", waste.waste_fraction},
                                      {"goodput", plan::goodput(model, interval)}}));
  }
  const Seconds swept = plan::swept_interval(model, question.step);
  const Seconds exact = plan::exact_interval(model);
  return Json::object({{"cost_s", model.cost.count},
                       {"mtbf_s", model.mtbf.count},
                       {"restart_s", model.restart.count},
                       {"intervals", intervals},
                       {"young_s", plan::young_interval(model).count},
                       {"daly_s", plan::daly_interval(model).count},
                       {"exact_s", exact.count},
                       {"step_s", question.step.count},
                       {"swept_s", swept.count},
                       {"swept_waste_fraction", plan::waste_at(model, swept).waste_fraction},
                       {"goodput", plan::goodput(model, exact)}});
}

void print_row(const FailureModel& model, std::string_view name, Seconds interval) {
  const Waste waste = plan::waste_at(model, interval);
  fmt::print("{:<10}{:>12}{:>12}{:>13}{:>12}{:>12}\n", name, format_seconds(interval),
             percent(waste.checkpoint_fraction, 3), percent(waste.lost_fraction, 3), percent(waste.waste_fraction, 3),
             percent(plan::goodput(model, interval), 2));
}

void print_tables(const Question& question) {
  const FailureModel& model = question.model;
  fmt::print("a save blocks for {}; a failure every {}; restart {}\n\n", format_seconds(model.cost),
             format_seconds(model.mtbf), format_seconds(model.restart));
  fmt::print("{:<10}{:>12}{:>12}{:>13}{:>12}{:>12}\n", "", "interval", "saving", "lost work", "waste", "goodput");
  for (Seconds interval : question.intervals) print_row(model, "", interval);
  fmt::print("\n");
  print_row(model, "Young", plan::young_interval(model));
  print_row(model, "Daly", plan::daly_interval(model));
  print_row(model, "exact", plan::exact_interval(model));
  print_row(model, "swept", plan::swept_interval(model, question.step));
  fmt::print(
      "\nwaste: cost / interval + interval / 2 MTBF, to first order; swept: the best of it in steps of {}\n"
      "goodput: work / wall time with restarts and failed saves (Daly's complete model); exact: its best interval\n",
      format_seconds(question.step));
}

std::string curve_plot(const Question& question) {
  const FailureModel& model = question.model;
  const double young = plan::young_interval(model).count;
  report::Plot plot{.x_label = "interval between saves, log scale", .y_label = "waste", .y_unit = " %"};
  const auto point = [&](Seconds interval) {
    return report::PlotPoint{interval.count, 100 * plan::waste_at(model, interval).waste_fraction};
  };
  for (const Waste& waste : plan::waste_curve(model, {young / 10}, {young * 10}, 2 * plot.width)) {
    plot.curve.push_back(point(waste.interval));
  }
  for (const RoundTime& time : kRoundTimes) plot.x_ticks.push_back({time.seconds, time.text});
  for (std::size_t i = 0; i < question.intervals.size(); ++i) {
    plot.marks.push_back({"○", point(question.intervals[i]), i == 0 ? "the intervals of the table" : ""});
  }
  for (const auto& [name, interval] :
       {std::pair("Young", plan::young_interval(model)), std::pair("Daly", plan::daly_interval(model)),
        std::pair("exact", plan::exact_interval(model))}) {
    plot.marks.push_back({"◆", point(interval), fmt::format("{} {}", name, format_seconds(interval))});
  }
  return report::draw_plot(plot);
}

}  // namespace

void declare_plan_checkpoint(Command& plan, Env&) {
  auto options = std::make_shared<Options>();
  Command& command = plan.command("checkpoint", "How often to save, and what each interval wastes");
  command.option("cost", options->cost, "how long one save blocks the run, e.g. 3min");
  command.option("mtbf", options->mtbf, "mean time between failures of the whole job, e.g. 50h");
  command.option("restart", options->restart, "from a failure to the first new step, e.g. 5min (0 where not given)");
  command.option("interval", options->interval, "intervals to show, e.g. 15min,60min,4h (a table around the best)");
  command.option("step", options->step, "steps of the sweep, e.g. 5min (a round time where not given)");
  command.flag("plot", options->plot, "draw the waste over the interval");
  command.flag("json", options->json, "one JSON object on standard output");
  command.examples(
      "  trireme plan checkpoint --cost 3min --mtbf 50h --plot\n"
      "  trireme plan checkpoint --cost 3min --mtbf 50h --restart 10min --interval 15min,60min,240min,480min");
  command.run([options] {
    if (options->json && options->plot)
      refuse("--plot", "", "--json prints one object and no picture", "leave one out");
    const Question question = read(*options);
    if (options->json) {
      fmt::print("{}\n", to_json(question).dump(2));
      return ExitCode::kDone;
    }
    print_tables(question);
    if (options->plot) fmt::print("\n{}", curve_plot(question));
    return ExitCode::kDone;
  });
}

}  // namespace trireme::cli
