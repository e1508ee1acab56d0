#include "cli/plan_tables.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "cli/times_apart.h"

namespace trireme::cli {

using planner::Choice;
using planner::Estimate;
using planner::MemoryEstimate;

std::string bytes_text(double bytes) { return format_bytes({static_cast<std::int64_t>(std::llround(bytes))}); }

std::string fits_text(double needed, double memory) {
  constexpr double kLeast = 1e8;  // less would print as 0.00 GB
  if (memory < kLeast) {
    return needed > memory ? fmt::format("does not fit: {} of {}", bytes_text(needed), bytes_text(memory))
                           : fmt::format("fits: {} of {}, {} free", bytes_text(needed), bytes_text(memory),
                                         bytes_text(memory - needed));
  }
  if (needed > memory) return fmt::format("does not fit: {:.2f} GB of {:.2f}", needed / 1e9, memory / 1e9);
  return fmt::format("fits: {:.2f} GB of {:.2f}, {:.2f} GB free", needed / 1e9, memory / 1e9, (memory - needed) / 1e9);
}

void print_memory_classes(const MemoryEstimate& memory) {
  for (int i = 0; i < kMemoryClassCount; ++i) {
    const auto memory_class = static_cast<MemoryClass>(i);
    if (memory[memory_class] > 0) {
      fmt::print("    {:<28}{:>12}\n", memory_class_name(memory_class), bytes_text(memory[memory_class]));
    }
  }
  fmt::print("    {:<28}{:>12}\n", "floor: the sum", bytes_text(memory.ledger));
  if (memory.context > 0) fmt::print("    {:<28}{:>12}\n", "context, libraries", bytes_text(memory.context));
  if (memory.fragmentation > 0) fmt::print("    {:<28}{:>12}\n", "fragmentation", bytes_text(memory.fragmentation));
  fmt::print("    {:<28}{:>12}\n", "expected", bytes_text(memory.total()));
}

std::string mfu_text(double mfu) { return mfu <= 1 ? fmt::format("{:.1f}%", 100 * mfu) : "none"; }

std::vector<std::string> step_column(const std::vector<Estimate>& estimates, std::size_t least) {
  std::vector<double> seconds;
  for (const Estimate& e : estimates) seconds.push_back(e.step_s);
  return times_column(seconds, least);
}

void print_ranking(const std::vector<Estimate>& best, double memory) {
  const std::vector<std::string> steps = step_column(best, 9);
  fmt::print("\n{:>3} {:>{}} {:>10} {:>6} {:>10} {:>10}  {}\n", "", "step", steps.front().size(), "tokens/s", "MFU",
             "memory", "free", "layout");
  for (std::size_t i = 0; i < best.size(); ++i) {
    const Estimate& e = best[i];
    fmt::print("{:>3} {} {:>10} {:>6} {:>10} {:>10}  {}\n", i + 1, steps[i],
               format_exact(static_cast<std::int64_t>(e.tokens_per_s)), mfu_text(e.mfu), bytes_text(e.worst().total()),
               bytes_text(memory - e.worst().total()), describe(e.choice));
  }
  const bool equal = std::ranges::any_of(steps, [](const std::string& text) { return text.find('=') != text.npos; });
  if (equal) fmt::print("= takes as long as the line above\n");
}

void print_explanation(const Estimate& e, const planner::Problem& problem, double memory) {
  fmt::print("\nexplained: {}\n", describe(e.choice));
  const int replica = e.choice.tp * e.choice.pp;
  fmt::print("  {} micro-batch{} a rank; a replica is {} rank{}; world {}\n", e.micro_batches,
             e.micro_batches == 1 ? "" : "es", replica, replica == 1 ? "" : "s", e.choice.world());
  fmt::print("  memory of the worst rank (stage {} of {}):\n", e.worst_stage, e.choice.pp);
  print_memory_classes(e.worst());
  fmt::print("  time of the busiest stage ({}):\n", e.busiest_stage);
  for (const auto& [name, seconds] : planner::named_parts(e.parts)) {
    fmt::print("    {:<28}{:>12}{:>7.1f} %\n", name, format_seconds({seconds}), 100 * seconds / e.step_s);
  }
  fmt::print("    {:<28}{:>12}   (closed form {})\n", "step", format_seconds({e.step_s}),
             format_seconds({e.closed_form_s}));
  fmt::print("  what binds: {}\n", planner::what_binds(e, memory));
  if (problem.cluster.device.price_per_hour > 0) {
    const double hourly = problem.cluster.device.price_per_hour * e.choice.world();
    fmt::print("  cost: {:.0f} an hour, {:.2f} a million tokens\n", hourly, hourly / 3600 / e.tokens_per_s * 1e6);
  }
}

void print_changes(const std::vector<planner::Change>& changes, const Estimate& from) {
  constexpr std::size_t kShown = 8;
  if (changes.empty()) return;
  fmt::print("\nwhat would change it (one step away, fastest first):\n");
  std::vector<double> seconds;
  for (std::size_t i = 0; i < std::min(kShown, changes.size()); ++i) seconds.push_back(changes[i].screened.time);
  const std::vector<std::string> times = times_column(seconds, 10);
  for (std::size_t i = 0; i < times.size(); ++i) {
    const planner::Change& c = changes[i];
    fmt::print("  {:<28}{} ({:+.1f} %) {:>11}{}\n", c.what, times[i], 100 * (c.screened.time / from.step_s - 1),
               bytes_text(c.screened.memory),
               c.shortage > 0 ? fmt::format("  does not fit by {}", bytes_text(c.shortage)) : "");
  }
}

void print_part_differences(const Estimate& asked, const Estimate& best) {
  const auto of = [](const Estimate& e, const std::string& name) {
    for (const auto& [part, seconds] : planner::named_parts(e.parts)) {
      if (part == name) return seconds;
    }
    return 0.0;
  };
  std::vector<std::pair<std::string, double>> differences;
  for (const Estimate* e : {&asked, &best}) {
    for (const auto& [part, seconds] : planner::named_parts(e->parts)) {
      const double difference = of(asked, part) - of(best, part);
      const bool known = std::ranges::any_of(differences, [&](const auto& d) { return d.first == part; });
      if (!known && std::abs(difference) > 0.001 * best.step_s) differences.emplace_back(part, difference);
    }
  }
  std::ranges::sort(differences, std::greater<>{}, [](const auto& d) { return std::abs(d.second); });
  for (const auto& [part, difference] : differences) {
    fmt::print("    {:<28}{}{:>9}\n", part, difference < 0 ? "-" : "+", format_seconds({std::abs(difference)}));
  }
}

Json choice_json(const Choice& c) {
  return Json::object({{"tp", c.tp},
                       {"pp", c.pp},
                       {"dp", c.dp},
                       {"interleave", c.interleave},
                       {"schedule", plan::schedule_name(c.schedule)},
                       {"zero", c.zero},
                       {"micro_batch", c.micro_batch},
                       {"recompute", model::recompute_name(c.recompute)},
                       {"sequence_parallel", c.sequence_parallel},
                       {"order", plan::axis_order_name(c.order)},
                       {"reduce", plan::reduce_name(c.reduce)},
                       {"prefetch", c.prefetch}});
}

Json memory_json(const MemoryEstimate& memory) {
  Json classes = Json::object();
  for (int i = 0; i < kMemoryClassCount; ++i) {
    const auto memory_class = static_cast<MemoryClass>(i);
    classes[std::string(memory_class_key(memory_class)) + "_bytes"] = memory[memory_class];
  }
  return Json::object({{"classes", classes},
                       {"floor_bytes", memory.ledger},
                       {"context_bytes", memory.context},
                       {"fragmentation_bytes", memory.fragmentation},
                       {"expected_bytes", memory.total()}});
}

Json estimate_json(const Estimate& e, double memory) {
  const planner::TimeParts& p = e.parts;
  return Json::object({{"layout", choice_json(e.choice)},
                       {"step_s", e.step_s},
                       {"closed_form_s", e.closed_form_s},
                       {"tokens_per_s", e.tokens_per_s},
                       {"mfu_fraction", e.mfu <= 1 ? Json(e.mfu) : Json()},
                       {"micro_batches", e.micro_batches},
                       {"memory_bytes", e.worst().total()},
                       {"headroom_bytes", memory - e.worst().total()},
                       {"worst_stage", e.worst_stage},
                       {"memory", memory_json(e.worst())},
                       {"time", Json::object({{"gemm_s", p.gemm},
                                              {"attention_s", p.attention},
                                              {"memory_bound_s", p.memory},
                                              {"tensor_s", p.tensor},
                                              {"pipeline_s", p.pipeline},
                                              {"bubble_s", p.bubble},
                                              {"data_s", p.data},
                                              {"gathers_s", p.gathers},
                                              {"optimizer_s", p.optimizer},
                                              {"overhead_s", p.overhead}})}});
}

}  // namespace trireme::cli
