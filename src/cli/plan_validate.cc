#include <map>

#include <fmt/format.h>

#include "cli/plan_commands.h"
#include "cli/plan_values.h"
#include "planner/published_score.h"

namespace trireme::cli {
namespace {

using planner::Errors;
using planner::RunScore;
using planner::SourceScore;

struct Options {
  std::string file, calibration, source;
  bool rows = false;
  bool json = false;
};

struct Report {
  planner::PublishedRuns published;
  std::vector<RunScore> scores;  // of `published`
  std::vector<SourceScore> sources;
};

void keep_source(planner::PublishedRuns& published, const std::string& part, const std::string& file) {
  if (part.empty()) return;
  const auto other = [&](const auto& run) { return run.source.find(part) == std::string::npos; };
  std::erase_if(published.runs, other);
  std::erase_if(published.skipped, other);
  if (published.runs.empty() && published.skipped.empty()) {
    refuse("--source", part, fmt::format("no row of {} has it in its source", file), "");
  }
}

// Reasons with the number of rows, the most frequent first.
std::vector<std::pair<std::string, int>> reasons(const planner::PublishedRuns& published) {
  std::map<std::string, int> counts;
  for (const planner::SkippedRun& run : published.skipped) ++counts[run.reason];
  std::vector<std::pair<std::string, int>> sorted(counts.begin(), counts.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  return sorted;
}

std::string signed_percent(double fraction) { return fmt::format("{:+.1f} %", 100 * fraction); }

std::string name_of(const SourceScore& score) {
  return score.source + (score.slow ? fmt::format(", under {} of the peak", percent(planner::kSlowShare, 0)) : "");
}

void print_sources(const std::vector<SourceScore>& sources) {
  std::size_t width = 10;
  for (const SourceScore& score : sources) width = std::max(width, name_of(score).size());
  fmt::print("{:<{}}{:>6}{:>9}{:>9}{:>10}{:>11}{:>9}{:>10}{:>6}{:>9}{:>10}\n", "source", width, "time", "mean",
             "median", "bias", "worst", "null", "null bias", "mem", "mean", "bias");
  for (const SourceScore& score : sources) {
    fmt::print("{:<{}}{:>6}", name_of(score), width, score.time.count);
    if (score.time.count > 0) {
      fmt::print("{:>9}{:>9}{:>10}{:>11}{:>9}{:>10}", percent(score.time.mean, 1), percent(score.time.median, 1),
                 signed_percent(score.time.bias), signed_percent(score.time.worst), percent(score.null_time.mean, 1),
                 signed_percent(score.null_time.bias));
    } else {
      fmt::print("{:>58}", "");
    }
    fmt::print("{:>6}", score.memory.count);
    if (score.memory.count > 0) {
      fmt::print("{:>9}{:>10}", percent(score.memory.mean, 1), signed_percent(score.memory.bias));
    }
    fmt::print("\n");
  }
  fmt::print(
      "time, mem: rows compared; mean, median: of the absolute errors; bias: mean of predicted / measured - 1;\n"
      "null: a model that says {} of the peak for every run\n",
      percent(planner::kNullShare, 0));
}

void print_rows(const Report& report) {
  fmt::print("\n{:<16}{:>14}{:>14}{:>10}{:>14}{:>14}{:>10}  {}\n", "row", "predicted", "measured", "error", "predicted",
             "measured", "error", "layout");
  const auto bytes = [](double value) { return format_bytes({static_cast<std::int64_t>(value)}); };
  for (const RunScore& score : report.scores) {
    fmt::print("{:<16}", score.run->id);
    if (score.step_s) {
      fmt::print("{:>14}{:>14}{:>10}", format_seconds({*score.step_s}), format_seconds({*score.run->step_s}),
                 signed_percent(*score.step_s / *score.run->step_s - 1));
    } else {
      fmt::print("{:>38}", "");
    }
    if (score.memory_bytes) {
      fmt::print("{:>14}{:>14}{:>10}", bytes(*score.memory_bytes), bytes(*score.run->memory_bytes),
                 signed_percent(*score.memory_bytes / *score.run->memory_bytes - 1));
    } else {
      fmt::print("{:>38}", "");
    }
    fmt::print("  {}\n", planner::describe(score.run->choice));
  }
  for (const planner::SkippedRun& run : report.published.skipped) {
    fmt::print("{:<16}  left out: {}{}\n", run.id, run.reason,
               run.detail.empty() ? "" : fmt::format(" ({})", run.detail));
  }
}

void print(const Report& report, bool rows) {
  print_sources(report.sources);
  const std::size_t used = report.published.runs.size(), skipped = report.published.skipped.size();
  fmt::print("\n{} rows: {} compared, {} left out\n", used + skipped, used, skipped);
  for (const auto& [reason, count] : reasons(report.published)) fmt::print("{:>6}  {}\n", count, reason);
  if (rows) print_rows(report);
}

Json errors_json(const Errors& errors) {
  return Json::object({{"rows", errors.count},
                       {"mean_absolute", errors.mean},
                       {"median_absolute", errors.median},
                       {"bias", errors.bias},
                       {"worst", errors.worst}});
}

Json row_json(const RunScore& score) {
  const auto pair = [](std::optional<double> predicted, std::optional<double> measured) {
    if (!predicted || !measured) return Json();
    return Json::object({{"predicted", *predicted}, {"measured", *measured}, {"error", *predicted / *measured - 1}});
  };
  return Json::object({{"id", score.run->id},
                       {"source", score.run->source},
                       {"line", score.run->line},
                       {"framework", score.run->framework},
                       {"layout", planner::describe(score.run->choice)},
                       {"step_s", pair(score.step_s, score.run->step_s)},
                       {"memory_bytes", pair(score.memory_bytes, score.run->memory_bytes)}});
}

Json to_json(const Report& report, bool rows) {
  Json sources = Json::array();
  for (const SourceScore& score : report.sources) {
    sources.push_back(Json::object({{"source", score.source},
                                    {"under_tenth_of_peak", score.slow},
                                    {"time", errors_json(score.time)},
                                    {"null_time", errors_json(score.null_time)},
                                    {"memory", errors_json(score.memory)}}));
  }
  Json skipped = Json::array();
  for (const auto& [reason, count] : reasons(report.published)) {
    skipped.push_back(Json::object({{"reason", reason}, {"rows", count}}));
  }
  Json result = Json::object({{"null_share_of_peak", planner::kNullShare},
                              {"compared", static_cast<std::int64_t>(report.published.runs.size())},
                              {"left_out", static_cast<std::int64_t>(report.published.skipped.size())},
                              {"sources", sources},
                              {"reasons", skipped}});
  if (!rows) return result;
  Json list = Json::array(), left_out = Json::array();
  for (const RunScore& score : report.scores) list.push_back(row_json(score));
  for (const planner::SkippedRun& run : report.published.skipped) {
    left_out.push_back(Json::object(
        {{"id", run.id}, {"source", run.source}, {"line", run.line}, {"reason", run.reason}, {"detail", run.detail}}));
  }
  result["rows"] = list;
  result["rows_left_out"] = left_out;
  return result;
}

}  // namespace

void declare_plan_validate(Command& plan, Env& env) {
  auto options = std::make_shared<Options>();
  Command& command = plan.command("validate", "The planner's errors against published runs, source by source");
  command.positional("FILE", options->file, "a CSV file, one run a row", true);
  command.option("calibration", options->calibration, "a file of constants over the defaults");
  command.option("source", options->source, "only rows whose source has this in it");
  command.flag("rows", options->rows, "each row: predicted, measured, error; why others are left out");
  command.flag("json", options->json, "one JSON object on standard output");
  command.examples("  trireme plan validate runs.csv\n  trireme plan validate runs.csv --source vTrain --rows");
  command.run([options, &env] {
    const planner::Calibration calibration = planner::load_calibration(env, options->calibration).or_throw();
    Report report;
    report.published = planner::parse_published(env.read_file(options->file), options->file).or_throw();
    keep_source(report.published, options->source, options->file);
    report.scores = planner::score_runs(report.published, calibration).or_throw();
    report.sources = planner::score_sources(report.scores);
    if (options->json) {
      fmt::print("{}\n", to_json(report, options->rows).dump(2));
    } else {
      print(report, options->rows);
    }
    return ExitCode::kDone;
  });
}

}  // namespace trireme::cli
