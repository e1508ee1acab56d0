#include <fmt/format.h>

#include "cli/plan_commands.h"
#include "cli/plan_question.h"
#include "cli/plan_tables.h"
#include "cli/plan_values.h"
#include "plan/traffic.h"

namespace trireme::cli {
namespace {

using planner::Choice;
using planner::Estimate;

struct Options {
  ModelFlags model;
  RunFlags run;
  LayoutFlags layout;
  bool json = false;
};

struct AxisRow {
  plan::Axis axis = plan::Axis::kTensor;
  int degree = 1;
  std::string splits;
  std::string sends;
  std::int64_t messages = 0;
  double bytes = 0;  // a step, of the busiest stage's rank
  std::string link;
  double exposed = 0;  // seconds a step
};

std::string link_of(const planner::Problem& problem, const Choice& choice, plan::Axis axis) {
  const plan::Layout layout = choice.layout();
  const std::int64_t host = problem.cluster.devices_per_host;
  std::size_t crossing = 0;
  const auto groups = plan::process_groups(layout, axis);
  for (const std::vector<int>& group : groups) {
    if (group.front() / host != group.back() / host) ++crossing;
  }
  if (crossing == 0) return "inside hosts";
  if (crossing == groups.size()) return "between hosts";
  return fmt::format("between hosts ({} of {} groups)", crossing, groups.size());
}

std::string data_sends(const Choice& choice) {
  switch (choice.zero) {
    case 0:
      return "all-reduce of gradients";
    case 1:
    case 2:
      return "reduce-scatter of gradients, all-gather of weights";
    default:
      return "all-gathers of weights for both passes, reduce-scatter of gradients";
  }
}

std::vector<AxisRow> axis_rows(const planner::Problem& problem, const Estimate& estimate) {
  const Choice& choice = estimate.choice;
  const plan::Layout layout = choice.layout();
  const int rank = plan::rank_of(layout, {.tp = 0, .pp = estimate.busiest_stage, .dp = 0});
  const plan::TrafficTable traffic = plan::predict_traffic(model::make_parameter_table(problem.config), layout,
                                                           problem.batch(choice.micro_batch), problem.inputs, rank);
  std::vector<AxisRow> rows{
      {.axis = plan::Axis::kTensor,
       .degree = choice.tp,
       .splits = "each layer: heads, MLP columns, vocabulary",
       .sends = choice.sequence_parallel ? "all-gather and reduce-scatter of activations, each layer"
                                         : "all-reduce of activations, twice a layer and pass",
       .link = {},
       .exposed = estimate.parts.tensor},
      {.axis = plan::Axis::kPipeline,
       .degree = choice.pp,
       .splits = "the layers into stages",
       .sends = "activations onward, their gradients back",
       .link = {},
       .exposed = estimate.parts.pipeline},
      {.axis = plan::Axis::kData,
       .degree = choice.dp,
       .splits = choice.zero == 0 ? "the batch" : "the batch, and the training state",
       .sends = data_sends(choice),
       .link = {},
       .exposed = estimate.parts.data + estimate.parts.gathers}};
  for (AxisRow& row : rows) {
    row.link = row.degree > 1 ? link_of(problem, choice, row.axis) : "none";
    for (const auto& [key, value] : traffic) {
      if (key.first != row.axis) continue;
      row.messages += value.calls;
      row.bytes += static_cast<double>(value.sent.count);
    }
  }
  return rows;
}

void print(const planner::Problem& problem, const Estimate& estimate, const std::vector<AxisRow>& rows,
           const planner::AxisAdvice& advice, double memory) {
  fmt::print("{}\n{}\n{}, batch {} x {} tokens\n\n", model_line(problem.config), cluster_line(problem.cluster),
             describe(estimate.choice), problem.global_batch, problem.sequence);
  for (const AxisRow& row : rows) {
    fmt::print("{} parallelism x {}\n  splits  {}\n", plan::axis_name(row.axis), row.degree, row.splits);
    if (row.degree == 1) {
      fmt::print("  sends   nothing: one rank\n");
      continue;
    }
    fmt::print(
        "  sends   {}\n  a step  {} operations, {} a rank (stage {}), {}\n  time    {} exposed, {:.1f} % of the step\n",
        row.sends, format_exact(row.messages), bytes_text(row.bytes), estimate.busiest_stage, row.link,
        format_seconds({row.exposed}), 100 * row.exposed / estimate.step_s);
  }
  fmt::print("bubble    {}, {:.1f} % of the step\n", format_seconds({estimate.parts.bubble}),
             100 * estimate.parts.bubble / estimate.step_s);
  fmt::print("step      {}, MFU {}; memory {}\n", format_seconds({estimate.step_s}),
             estimate.mfu <= 1 ? percent(estimate.mfu, 1) : "none", fits_text(estimate.worst().total(), memory));
  fmt::print("\nwhich axis solves the bottleneck: {}\n", advice.sentence);
  fmt::print(
      "  it fits and is slow: data. A layer is too big: tensor. Too deep: pipeline. The state is too big: ZeRO.\n");
}

Json to_json(const Estimate& estimate, const std::vector<AxisRow>& rows, const planner::AxisAdvice& advice,
             double memory) {
  Json axes = Json::array();
  for (const AxisRow& row : rows) {
    axes.push_back(Json::object({{"axis", plan::axis_name(row.axis)},
                                 {"degree", row.degree},
                                 {"splits", row.splits},
                                 {"sends", row.degree > 1 ? row.sends : ""},
                                 {"operations_per_step", row.messages},
                                 {"bytes_per_rank", row.bytes},
                                 {"link", row.link},
                                 {"exposed_s", row.exposed}}));
  }
  return Json::object({{"axes", axes},
                       {"estimate", estimate_json(estimate, memory)},
                       {"advice", Json::object({{"axis", advice.axis},
                                                {"sentence", advice.sentence},
                                                {"one_device_bytes", advice.one_device},
                                                {"one_layer_bytes", advice.one_layer}})}});
}

ExitCode plan_axes(const Options& options, Env& env) {
  const model::Config config = options.model.read(env, options.run.sequence);
  const planner::Problem problem = options.run.problem(env, config, options.run.read_cluster(env));
  const planner::Wanted wanted = options.layout.read();
  const Choice choice = planner::choice_of(wanted, static_cast<int>(problem.cluster.devices()));
  const Status legal = planner::check_choice(problem, choice, wanted.allow_slow_tp);
  if (!legal) refuse_layout(legal.failure());
  const Estimate estimate = planner::Evaluator(problem).estimate(choice);
  const double memory = static_cast<double>(problem.cluster.device.memory.count);
  const std::vector<AxisRow> rows = axis_rows(problem, estimate);
  const planner::AxisAdvice advice = planner::axis_advice(problem, memory);
  if (options.json) {
    fmt::print("{}\n", to_json(estimate, rows, advice, memory).dump(2));
  } else {
    print(problem, estimate, rows, advice, memory);
  }
  return estimate.worst().total() <= memory ? ExitCode::kDone : ExitCode::kDoesNotFit;
}

}  // namespace

void declare_plan_axes(Command& plan, Env& env) {
  auto options = std::make_shared<Options>();
  Command& command =
      plan.command("axes", "What each axis of a layout splits and sends, and which one a model asks for");
  options->model.declare(command);
  options->run.declare(command);
  options->layout.declare(command);
  command.flag("json", options->json, "one JSON object on standard output");
  command.examples("  trireme plan axes examples/models/llama-2-70b --cluster a100-80:256 --batch 1024 --tp 8 --pp 4");
  command.run([options, &env] { return plan_axes(*options, env); });
}

}  // namespace trireme::cli
