#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "cli/plan_commands.h"
#include "cli/plan_values.h"
#include "plan/schedule_order.h"

namespace trireme::cli {
namespace {

using plan::ScheduleKind;

constexpr int kMostStages = 4096;
constexpr int kMostMicrobatches = 1 << 20;
constexpr int kMostInterleave = 1024;
constexpr ScheduleKind kKinds[] = {ScheduleKind::kGpipe, ScheduleKind::kOneFOneB, ScheduleKind::kInterleaved,
                                   ScheduleKind::kZeroBubbleH1};

struct Options {
  std::string stages, microbatches, interleave;
  bool json = false;
};

struct Pipeline {
  int stages = 1;
  int interleave = 2;
};

// One schedule's answer: nothing where it does not exist for these numbers.
struct Answer {
  double bubble = 0;     // of the step's total
  double in_flight = 0;  // most micro-batches whose activations a stage holds, in whole stages
};

// With F, B and W of one length. GPipe and 1F1B wait p - 1 micro-batches (Narayanan et al. 2021); interleaved a v-th of
// that; ZB-H1 fills the wait with weight passes up to (p - 1) (F + B - W) (Qi et al. 2023). With fewer micro-batches
// than stages there is less to fill it with: a micro-batch's way there and back, the others behind it, one weight pass.
double bubble_fraction(ScheduleKind kind, const Pipeline& pipeline, int microbatches) {
  const double m = microbatches;
  const double p = pipeline.stages;
  if (kind == ScheduleKind::kZeroBubbleH1) return 1 - 3 * m / std::max(3 * m + p - 1, 2 * m + 2 * p - 1);
  const double work = kind == ScheduleKind::kInterleaved ? pipeline.interleave * m : m;
  return (p - 1) / (work + p - 1);
}

std::optional<Answer> answer(ScheduleKind kind, const Pipeline& pipeline, int microbatches) {
  const bool interleaved = kind == ScheduleKind::kInterleaved;
  if (interleaved && microbatches % pipeline.stages != 0) return std::nullopt;
  const int chunks = interleaved ? pipeline.interleave : 1;
  int most = 0;
  for (int stage = 0; stage < pipeline.stages; ++stage) {
    most = std::max(most, plan::in_flight_bound(kind, pipeline.stages, chunks, microbatches, stage));
  }
  return Answer{.bubble = bubble_fraction(kind, pipeline, microbatches),
                .in_flight = static_cast<double>(most) / chunks};
}

std::string why_not(const Pipeline& pipeline) {
  return fmt::format("needs micro-batches divisible by the {} stages", pipeline.stages);
}

std::string schedule_label(ScheduleKind kind, const Pipeline& pipeline) {
  std::string label(plan::schedule_name(kind));
  if (kind == ScheduleKind::kInterleaved) label += fmt::format(" x{}", pipeline.interleave);
  return label;
}

Json schedules_json(const Pipeline& pipeline, int microbatches) {
  Json list = Json::array();
  for (ScheduleKind kind : kKinds) {
    Json entry = Json::object({{"schedule", plan::schedule_name(kind)}});
    if (kind == ScheduleKind::kInterleaved) entry["interleave"] = pipeline.interleave;
    const std::optional<Answer> found = answer(kind, pipeline, microbatches);
    entry["bubble_fraction"] = found ? Json(found->bubble) : Json();
    entry["in_flight_microbatches"] = found ? Json(found->in_flight) : Json();
    if (!found) entry["rule"] = why_not(pipeline);
    list.push_back(entry);
  }
  return list;
}

std::string number(double value) {
  std::string text = fmt::format("{:.2f}", value);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

Json one_json(const Pipeline& pipeline, int microbatches) {
  return Json::object({{"stages", pipeline.stages},
                       {"microbatches", microbatches},
                       {"bubble_fraction", bubble_fraction(ScheduleKind::kOneFOneB, pipeline, microbatches)},
                       {"schedules", schedules_json(pipeline, microbatches)}});
}

void print_one(const Pipeline& pipeline, int microbatches) {
  fmt::print("{} stage{}, {} micro-batch{}\n\n", pipeline.stages, pipeline.stages == 1 ? "" : "s", microbatches,
             microbatches == 1 ? "" : "es");
  fmt::print("{:<16}{:>10}{:>14}\n", "schedule", "bubble", "in flight");
  for (ScheduleKind kind : kKinds) {
    const std::optional<Answer> found = answer(kind, pipeline, microbatches);
    if (found) {
      fmt::print("{:<16}{:>10}{:>14}\n", schedule_label(kind, pipeline), percent(found->bubble, 1),
                 number(found->in_flight));
    } else {
      fmt::print("{:<16}   {}\n", schedule_label(kind, pipeline), why_not(pipeline));
    }
  }
}

std::vector<int> sweep() { return {1, 2, 4, 8, 16, 32, 64, 128, 256}; }

void print_sweep(const Pipeline& pipeline) {
  const std::string interleaved = schedule_label(ScheduleKind::kInterleaved, pipeline);
  fmt::print("{} stage{}\n\n", pipeline.stages, pipeline.stages == 1 ? "" : "s");
  fmt::print("{:>13}  {:^38}   {:>32}\n", "", "bubble", "micro-batches in flight");
  fmt::print("{:>13}  {:>12}{:>16}{:>10}   {:>8}{:>6}{:>16}{:>8}\n", "micro-batches", "gpipe, 1f1b", interleaved,
             "zb-h1", "gpipe", "1f1b", interleaved, "zb-h1");
  for (int microbatches : sweep()) {
    std::string bubbles;
    std::string in_flight;
    for (ScheduleKind kind : kKinds) {
      const std::optional<Answer> found = answer(kind, pipeline, microbatches);
      const bool wide = kind == ScheduleKind::kInterleaved;
      if (kind != ScheduleKind::kOneFOneB) {
        const int width = wide ? 16 : kind == ScheduleKind::kGpipe ? 12 : 10;
        bubbles += fmt::format("{:>{}}", found ? percent(found->bubble, 1) : "-", width);
      }
      const int width = wide ? 16 : kind == ScheduleKind::kOneFOneB ? 6 : 8;
      in_flight += fmt::format("{:>{}}", found ? number(found->in_flight) : "-", width);
    }
    fmt::print("{:>13}  {}   {}\n", microbatches, bubbles, in_flight);
  }
  fmt::print("\n");
  if (pipeline.stages > 1) fmt::print("-: {} {}\n", interleaved, why_not(pipeline));
}

void print_notes() {
  fmt::print(
      "bubble: the part of a step that a stage waits, stages of one length, forward, backward for the input and\n"
      "backward for the weights of one length, transfers free\n"
      "in flight: micro-batches whose activations the fullest stage holds at once, in whole stages\n");
}

Json sweep_json(const Pipeline& pipeline) {
  Json list = Json::array();
  for (int microbatches : sweep()) list.push_back(one_json(pipeline, microbatches));
  return Json::object({{"stages", pipeline.stages}, {"sweep", list}});
}

ExitCode run(const Options& options) {
  Pipeline pipeline;
  pipeline.stages = whole_number("--stages", options.stages, "4", kMostStages);
  if (!options.interleave.empty()) {
    pipeline.interleave = whole_number("--interleave", options.interleave, "2", kMostInterleave);
  }
  if (options.microbatches.empty()) {
    if (options.json) {
      fmt::print("{}\n", sweep_json(pipeline).dump(2));
      return ExitCode::kDone;
    }
    print_sweep(pipeline);
  } else {
    const int microbatches = whole_number("--microbatches", options.microbatches, "16", kMostMicrobatches);
    if (options.json) {
      fmt::print("{}\n", one_json(pipeline, microbatches).dump(2));
      return ExitCode::kDone;
    }
    print_one(pipeline, microbatches);
    fmt::print("\n");
  }
  print_notes();
  return ExitCode::kDone;
}

}  // namespace

void declare_plan_bubble(Command& plan, Env&) {
  auto options = std::make_shared<Options>();
  Command& command = plan.command("bubble", "How long a pipeline waits, and what waiting less costs in activations");
  command.option("stages", options->stages, "pipeline stages");
  command.option("microbatches", options->microbatches, "micro-batches a step (a table of many where not given)");
  command.option("interleave", options->interleave, "model chunks a stage of the interleaved schedule (2)");
  command.flag("json", options->json, "one JSON object on standard output");
  command.examples(
      "  trireme plan bubble --stages 4 --microbatches 16\n  trireme plan bubble --stages 8 --interleave 4");
  command.run([options] { return run(*options); });
}

}  // namespace trireme::cli
