#include <fmt/format.h>

#include "cli/plan_commands.h"
#include "cli/plan_question.h"
#include "cli/plan_tables.h"
#include "cli/plan_values.h"
#include "cli/times_apart.h"
#include "planner/explain.h"

namespace trireme::cli {
namespace {

using planner::Estimate;
using planner::SearchResult;

struct Options {
  ModelFlags model;
  RunFlags run;
  LayoutFlags layout;
  std::string device_memory, rank_by = "time", why_not;
  std::int64_t top = 10, explain = 1;
  bool json = false, wide = false, exhaustive = false;
};

planner::SearchOptions search_options(const Options& options) {
  planner::SearchOptions search{.wanted = options.layout.read(), .device_memory = {}};
  search.wanted.wide = options.wide;
  Result<planner::Objective> objective = planner::parse_objective(options.rank_by);
  if (!objective) refuse("--rank-by", options.rank_by, "is not known", objective.failure().nearest);
  search.objective = *objective;
  if (!options.device_memory.empty()) {
    search.device_memory = {static_cast<std::int64_t>(device_memory_bytes("--device-memory", options.device_memory))};
  }
  if (options.top < 1 || options.top > 1000) {
    refuse("--top", fmt::format("{}", options.top), "must be between 1 and 1000", options.top < 1 ? "1" : "1000");
  }
  search.show = static_cast<int>(options.top);
  search.exhaustive = options.exhaustive;
  return search;
}

struct Answer {
  SearchResult result;
  std::vector<planner::Change> changes = {};
  const Estimate* explained = nullptr;
  double memory = 0;
  std::int64_t fewest_devices = 0;  // where nothing fits; 0: no number would do
  std::optional<planner::NearMiss> fewest_layout = {};
};

void print_summary(const planner::Problem& problem, const Options& options, const Answer& answer) {
  const SearchResult& r = answer.result;
  fmt::print("{}\n{}, {} of memory each\nbatch {} x {} tokens, {}, framework {}\n\n", model_line(problem.config),
             cluster_line(problem.cluster), bytes_text(answer.memory), format_exact(problem.global_batch),
             format_exact(problem.sequence), options.run.precision, options.run.framework);
  fmt::print("{} layouts screened in {}, {} fit; {} schedules simulated in {}{}\n", format_exact(r.screened),
             format_seconds({r.screening_s}), format_exact(r.fitting), format_exact(r.simulated),
             format_seconds({r.simulating_s}),
             r.best.empty()    ? ""
             : r.winner_proved ? "; no other can be better than the first"
                               : "; others might be better than the first");
}

void print_near_misses(const Answer& answer) {
  if (answer.result.near_misses.empty()) return;
  fmt::print("\nfaster, but too large:\n");
  const std::vector<planner::NearMiss>& misses = answer.result.near_misses;
  std::vector<double> seconds;
  for (const planner::NearMiss& miss : misses) seconds.push_back(miss.time);
  const std::vector<std::string> times = times_column(seconds, 9);
  for (std::size_t i = 0; i < misses.size(); ++i) {
    fmt::print("  {}  needs {} more: {}\n", times[i], bytes_text(misses[i].shortage), describe(misses[i].choice));
  }
}

void print_pareto(const Answer& answer) {
  if (answer.result.pareto.size() < 2) return;
  fmt::print("\nfastest for its memory (Pareto): step time, memory of the worst rank\n");
  constexpr double kWorthALine = 0.95;  // of the memory of the line above; --json has all
  std::vector<Estimate> shown;
  for (const Estimate& e : answer.result.pareto) {
    const bool worth = shown.empty() || e.worst().total() <= kWorthALine * shown.back().worst().total();
    if (worth || &e == &answer.result.pareto.back()) shown.push_back(e);
  }
  const std::vector<std::string> steps = step_column(shown, 9);
  for (std::size_t i = 0; i < shown.size(); ++i) {
    fmt::print("  {}  {:>10}  {}\n", steps[i], bytes_text(shown[i].worst().total()), describe(shown[i].choice));
  }
}

// Where nothing fits: the fewest devices that would do, and their layout.
constexpr std::int64_t kMostDevices = 65536;
void find_fewest(const planner::Problem& problem, const planner::SearchOptions& search, Answer& answer) {
  planner::SearchOptions larger = search;
  larger.device_memory = {static_cast<std::int64_t>(answer.memory)};
  answer.fewest_devices = planner::smallest_fitting_world(problem, larger, kMostDevices, answer.fewest_layout);
}

void print_nothing_fits(const Answer& answer) {
  const planner::NearMiss& smallest = *answer.result.smallest;
  fmt::print("\nnothing fits. The smallest: {}: {}, {} more than there is\n", describe(smallest.choice),
             fits_text(smallest.shortage + answer.memory, answer.memory), bytes_text(smallest.shortage));
  if (answer.fewest_devices > 0) {
    fmt::print("fewest devices that would do: {}: {}\n", format_exact(answer.fewest_devices),
               describe(answer.fewest_layout->choice));
  } else {
    fmt::print("no number of devices up to {} would do at this batch\n", format_exact(kMostDevices));
  }
}

void print_why_not(const Options& options, const planner::WhyNot& why, const Answer& answer) {
  fmt::print("\nwhy not {}?\n", options.why_not);
  if (why.illegal) {
    fmt::print("  it is not legal: {}\n", with_flags(*why.illegal).sentence());
    return;
  }
  const Estimate& best = *why.best;
  fmt::print("  the {} of its kind: {}\n", why.too_large ? "smallest" : "best", describe(best.choice));
  if (why.too_large) {
    fmt::print("  it {}; {} would be needed on stage {}:\n", fits_text(best.worst().total(), answer.memory),
               bytes_text(best.worst().total()), best.worst_stage);
    print_memory_classes(best.worst());
  }
  const Estimate* winner = answer.result.winner();
  if (winner == nullptr) return;
  if (best.choice == winner->choice) {
    fmt::print("  it is the first of the list\n");
    return;
  }
  const std::vector<std::string> steps = times_apart({best.step_s, winner->step_s});
  fmt::print("  step {} against {} ({:+.1f} %)\n", steps[0], steps[1], 100 * (best.step_s / winner->step_s - 1));
  print_part_differences(best, *winner);
}

Json to_json(const planner::Problem& problem, const Answer& answer, const std::optional<planner::WhyNot>& why) {
  const SearchResult& r = answer.result;
  Json best = Json::array(), pareto = Json::array(), misses = Json::array(), changes = Json::array();
  for (const Estimate& e : r.best) best.push_back(estimate_json(e, answer.memory));
  for (const Estimate& e : r.pareto) pareto.push_back(estimate_json(e, answer.memory));
  for (const planner::NearMiss& m : r.near_misses) {
    misses.push_back(
        Json::object({{"layout", choice_json(m.choice)}, {"closed_form_s", m.time}, {"missing_bytes", m.shortage}}));
  }
  for (const planner::Change& c : answer.changes) {
    changes.push_back(Json::object({{"change", c.what},
                                    {"layout", choice_json(c.choice)},
                                    {"step_s", c.screened.time},
                                    {"memory_bytes", c.screened.memory},
                                    {"fits", c.shortage <= 0}}));
  }
  Json json = Json::object({{"devices", problem.cluster.devices()},
                            {"device_memory_bytes", answer.memory},
                            {"screened", r.screened},
                            {"fitting", r.fitting},
                            {"simulated", r.simulated},
                            {"screening_s", r.screening_s},
                            {"simulating_s", r.simulating_s},
                            {"winner_proved", r.winner_proved},
                            {"best", best},
                            {"pareto", pareto},
                            {"near_misses", misses},
                            {"changes", changes}});
  if (r.smallest) {
    json["smallest"] =
        Json::object({{"layout", choice_json(r.smallest->choice)}, {"missing_bytes", r.smallest->shortage}});
  }
  if (why) {
    Json reason = Json::object({{"illegal", why->illegal ? Json(with_flags(*why->illegal).sentence()) : Json()}});
    if (why->best) reason["best"] = estimate_json(*why->best, answer.memory);
    if (why->too_large) reason["missing_bytes"] = why->too_large->shortage;
    json["why_not"] = reason;
  }
  return json;
}

ExitCode plan_model(Options& options, Env& env) {
  const model::Config config = options.model.read(env, options.run.sequence);
  const planner::Problem problem = options.run.problem(env, config, options.run.read_cluster(env));
  const planner::SearchOptions search = search_options(options);
  planner::Evaluator evaluator(problem);
  Answer answer{.result = planner::search(evaluator, search, env)};
  if (answer.result.screened == 0) {
    const planner::WhyNot illegal = planner::why_not(problem, search, search.wanted, env);
    refuse_layout(*illegal.illegal);
  }
  answer.memory = static_cast<double>(
      (search.device_memory.count > 0 ? search.device_memory : problem.cluster.device.memory).count);
  if (answer.result.best.empty()) find_fewest(problem, search, answer);
  if (!answer.result.best.empty()) {
    if (options.explain < 1 || options.explain > static_cast<std::int64_t>(answer.result.best.size())) {
      refuse("--explain", fmt::format("{}", options.explain),
             fmt::format("must be between 1 and {}, the layouts of the list", answer.result.best.size()),
             fmt::format("{}", options.explain < 1 ? 1 : answer.result.best.size()));
    }
    answer.explained = &answer.result.best[static_cast<std::size_t>(options.explain - 1)];
    answer.changes =
        planner::neighbours(evaluator, answer.explained->choice, answer.memory, search.wanted.allow_slow_tp);
  }
  std::optional<planner::WhyNot> why;
  if (!options.why_not.empty()) {
    why = planner::why_not(problem, search, parse_wanted("--why-not", options.why_not), env);
  }
  const ExitCode code = answer.result.best.empty() ? ExitCode::kDoesNotFit : ExitCode::kDone;
  if (options.json) {
    fmt::print("{}\n", to_json(problem, answer, why).dump(2));
    return code;
  }
  print_summary(problem, options, answer);
  if (answer.explained) {
    print_ranking(answer.result.best, answer.memory);
    print_explanation(*answer.explained, problem, answer.memory);
    print_changes(answer.changes, *answer.explained);
    print_pareto(answer);
    print_near_misses(answer);
  } else {
    print_nothing_fits(answer);
  }
  if (why) print_why_not(options, *why, answer);
  return code;
}

}  // namespace

void declare_plan_search(Command& plan, Env& env) {
  auto options = std::make_shared<Options>();
  options->model.declare(plan);
  options->run.declare(plan);
  options->layout.declare(plan);
  plan.option("device-memory", options->device_memory, "instead of the cluster's");
  plan.option("rank-by", options->rank_by, "time, cost (device-seconds a step, fewer devices too), headroom");
  plan.option("top", options->top, "layouts to show");
  plan.option("explain", options->explain, "which of them to explain");
  plan.option("why-not", options->why_not, "explain these values: tp=16,pp=4");
  plan.flag("wide", options->wide, "search both ways of reducing and several prefetch depths as well");
  plan.flag("exhaustive", options->exhaustive, "simulate every layout that fits (slow)");
  plan.flag("json", options->json, "one JSON object on standard output");
  plan.examples(
      "  trireme plan examples/models/llama-3.1-405b --cluster h100:16384 --batch 2048\n"
      "  trireme plan --layers 96 --hidden 12288 --heads 96 --family gpt2 --cluster a100-80:512 --batch 1536\n"
      "  trireme plan examples/models/llama-3-8b --cluster h100:64 --batch 512 --why-not tp=16,pp=4\n"
      "  trireme plan memory --params 7B --ranks 8");
  plan.run([options, &env] { return plan_model(*options, env); });
}

}  // namespace trireme::cli
