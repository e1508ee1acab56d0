#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "cli/plan_commands.h"
#include "cli/plan_values.h"
#include "planner/fleet.h"

namespace trireme::cli {
namespace {

struct Options {
  std::string devices, device_mtbf, duration, cost, restart;
  bool json = false;
};

struct Question {
  planner::Fleet fleet;
  Seconds cost;  // 0: not given
  Seconds restart;
};

Question read(const Options& options) {
  Question question;
  question.fleet.devices = whole_number("--devices", options.devices, "4000", std::numeric_limits<std::int32_t>::max());
  question.fleet.device_mtbf = positive_seconds("--device-mtbf", options.device_mtbf, "3y");
  question.fleet.duration = positive_seconds("--duration", options.duration, "3w");
  if (!options.cost.empty()) question.cost = positive_seconds("--cost", options.cost, "3min");
  if (!options.restart.empty() && options.cost.empty()) {
    refuse("--restart", options.restart, "says nothing without --cost", "give both, e.g. --cost 3min --restart 10min");
  }
  question.restart = seconds_or_zero("--restart", options.restart);
  return question;
}

// Without --cost the interval and what follows from it are not asked for; any cost gives the rest.
planner::FleetForecast forecast(const Question& question) {
  const Seconds cost = question.cost.count > 0 ? question.cost : Seconds{1};
  return planner::forecast(question.fleet, cost, question.restart);
}

Json to_json(const Question& question) {
  const planner::FleetForecast result = forecast(question);
  Json object = Json::object({{"devices", question.fleet.devices},
                              {"device_mtbf_s", question.fleet.device_mtbf.count},
                              {"duration_s", question.fleet.duration.count},
                              {"job_mtbf_s", result.job_mtbf.count},
                              {"failures", result.failures},
                              {"no_failure_probability", result.no_failure}});
  if (question.cost.count > 0) {
    object["interval_s"] = result.interval.count;
    object["goodput"] = result.goodput;
    object["wall_s"] = finite_or_null(result.wall.count);
  }
  return object;
}

void print(const Question& question) {
  const planner::FleetForecast result = forecast(question);
  fmt::print("{} devices that fail every {} each, independently\n\n", format_exact(question.fleet.devices),
             format_seconds(question.fleet.device_mtbf));
  fmt::print("{:<34}{}\n", "a failure of the job every", format_seconds(result.job_mtbf));
  fmt::print("{:<34}{:.{}f}\n", fmt::format("failures in {}", format_seconds(question.fleet.duration)), result.failures,
             result.failures < 10 ? 2 : 0);
  fmt::print("{:<34}{:.3g}\n", "chance of none", result.no_failure);
  if (question.cost.count <= 0) {
    fmt::print("\n--cost (of one save) and --restart add when to save, and the wall time\n");
    return;
  }
  fmt::print("{:<34}{}\n", "best interval between saves", format_seconds(result.interval));
  fmt::print("{:<34}{}\n", "goodput at it", percent(result.goodput, 2));
  fmt::print("{:<34}{}\n", "wall time",
             std::isfinite(result.wall.count) ? format_seconds(result.wall) : "without end: it never gets ahead");
}

}  // namespace

void declare_plan_fleet(Command& plan, Env&) {
  auto options = std::make_shared<Options>();
  Command& command = plan.command("fleet", "How often a job on many devices fails, and what that costs");
  command.option("devices", options->devices, "devices that the job needs, all of them");
  command.option("device-mtbf", options->device_mtbf, "mean time between failures of one device, e.g. 3y");
  command.option("duration", options->duration, "of the run's own work, e.g. 3w");
  command.option("cost", options->cost, "how long one save blocks the run, e.g. 3min");
  command.option("restart", options->restart, "from a failure to the first new step, e.g. 10min");
  command.flag("json", options->json, "one JSON object on standard output");
  command.examples(
      "  trireme plan fleet --devices 4000 --device-mtbf 3y --duration 3w\n"
      "  trireme plan fleet --devices 16384 --device-mtbf 5.8y --duration 54d --cost 1min --restart 10min");
  command.run([options] {
    const Question question = read(*options);
    if (options->json) {
      fmt::print("{}\n", to_json(question).dump(2));
    } else {
      print(question);
    }
    return ExitCode::kDone;
  });
}

}  // namespace trireme::cli
