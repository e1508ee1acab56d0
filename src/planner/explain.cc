#include "planner/explain.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "base/divisors.h"
#include "planner/state_memory.h"

namespace trireme::planner {
namespace {

double real(std::int64_t value) { return static_cast<double>(value); }
std::string gigabytes(double bytes) { return format_bytes({static_cast<std::int64_t>(bytes)}); }

// Neighbours of a layout that keep its number of ranks.
class Steps {
 public:
  explicit Steps(const Choice& from) : from_(from) {}

  std::vector<std::pair<std::string, Choice>> all() {
    degrees();
    counts();
    kinds();
    return std::move(steps_);
  }

 private:
  void add(std::string what, Choice choice) {
    if (choice != from_) steps_.emplace_back(std::move(what), choice);
  }
  // tp and pp change against dp.
  void degrees() {
    for (int Choice::*degree : {&Choice::tp, &Choice::pp}) {
      const char* name = degree == &Choice::tp ? "tp" : "pp";
      for (bool up : {true, false}) {
        Choice to = from_;
        if (up ? to.dp % 2 != 0 : to.*degree % 2 != 0) continue;
        to.*degree = up ? to.*degree * 2 : to.*degree / 2;
        to.dp = up ? to.dp / 2 : to.dp * 2;
        if (to.tp == 1) to.sequence_parallel = false;
        if (to.dp == 1) to.zero = 0;
        if (to.pp == 1) {
          to.interleave = 1;
          to.schedule = plan::ScheduleKind::kOneFOneB;
        }
        to.reduce = plan::default_reduce(to.zero);
        add(fmt::format("{} {} -> {}", name, from_.*degree, to.*degree), to);
      }
    }
  }
  void counts() {
    for (std::int64_t micro_batch : {from_.micro_batch * 2, from_.micro_batch / 2}) {
      if (micro_batch < 1) continue;
      Choice to = from_;
      to.micro_batch = micro_batch;
      add(fmt::format("micro-batch {} -> {}", from_.micro_batch, micro_batch), to);
    }
    for (int interleave : {from_.interleave + 1, from_.interleave - 1}) {
      if (from_.pp == 1 || interleave < 1) continue;
      Choice to = from_;
      to.interleave = interleave;
      to.schedule = interleave > 1 ? plan::ScheduleKind::kInterleaved : plan::ScheduleKind::kOneFOneB;
      if (from_.interleave == 1 && from_.schedule != plan::ScheduleKind::kOneFOneB) continue;
      add(fmt::format("interleave {} -> {}", from_.interleave, interleave), to);
    }
    for (int zero = 0; zero <= 3 && from_.dp > 1; ++zero) {
      Choice to = from_;
      to.zero = zero;
      to.reduce = plan::default_reduce(zero);
      if (zero != from_.zero) add(fmt::format("ZeRO {} -> {}", from_.zero, zero), to);
    }
  }
  void kinds() {
    for (model::Recompute recompute :
         {model::Recompute::kNone, model::Recompute::kSelective, model::Recompute::kFull}) {
      Choice to = from_;
      to.recompute = recompute;
      add(fmt::format("recompute {} -> {}", model::recompute_name(from_.recompute), model::recompute_name(recompute)),
          to);
    }
    for (plan::ScheduleKind schedule :
         {plan::ScheduleKind::kGpipe, plan::ScheduleKind::kOneFOneB, plan::ScheduleKind::kZeroBubbleH1}) {
      if (from_.pp == 1) break;
      Choice to = from_;
      to.schedule = schedule;
      to.interleave = 1;
      add(fmt::format("{} -> {}", plan::schedule_name(from_.schedule), plan::schedule_name(schedule)), to);
    }
    if (from_.tp > 1) {
      Choice to = from_;
      to.sequence_parallel = !to.sequence_parallel;
      add(fmt::format("sequence parallelism {}", to.sequence_parallel ? "on" : "off"), to);
    }
    if (from_.pp > 1 && from_.dp > 1) {
      Choice to = from_;
      to.order = to.order == plan::AxisOrder::kTpPpDp ? plan::AxisOrder::kTpDpPp : plan::AxisOrder::kTpPpDp;
      add(fmt::format("axis order {}", plan::axis_order_name(to.order)), to);
    }
  }

  Choice from_;
  std::vector<std::pair<std::string, Choice>> steps_;
};

}  // namespace

Status check_choice(const Problem& problem, const Choice& choice, bool allow_slow_tp) {
  const std::int64_t devices = problem.cluster.devices();
  const int host = problem.cluster.devices_per_host;
  if (choice.tp > host && !allow_slow_tp) {
    return Failure{
        .option = "layout.tp",
        .value = fmt::format("{}", choice.tp),
        .rule = fmt::format("tensor parallelism would leave the host ({} devices): every layer would "
                            "exchange over the network (--allow-slow-tp permits it)",
                            host),
        .nearest = fmt::format("{}", legal_tensor_degrees(problem, static_cast<int>(devices), false).back())};
  }
  const Status legal = plan::check_layout(problem.config, choice.layout(), problem.batch(choice.micro_batch));
  if (!legal.ok() && legal.failure().option != "train.global_batch") return legal;
  const std::int64_t replica = std::int64_t{choice.tp} * choice.pp;
  if (devices % replica != 0) {
    const bool by_tensor = devices % choice.tp != 0;
    return Failure{
        .option = by_tensor ? "layout.tp" : "layout.pp",
        .value = fmt::format("{}", by_tensor ? choice.tp : choice.pp),
        .rule =
            fmt::format("tp x pp ({} x {}) must divide the devices ({})", choice.tp, choice.pp, format_exact(devices)),
        .nearest = by_tensor
                       ? nearest_of(legal_tensor_degrees(problem, static_cast<int>(devices), allow_slow_tp), choice.tp)
                       : nearest_of(legal_pipeline_degrees(problem, static_cast<int>(devices), choice.tp), choice.pp)};
  }
  if (replica * choice.dp != devices) {
    return Failure{.option = "layout.dp",
                   .value = fmt::format("{}", choice.dp),
                   .rule = fmt::format("tp x pp x dp must be the devices ({})", format_exact(devices)),
                   .nearest = fmt::format("{}", devices / replica)};
  }
  return legal;
}

std::vector<Change> neighbours(Evaluator& evaluator, const Choice& choice, double memory, bool allow_slow_tp) {
  std::vector<Change> changes;
  for (auto& [what, to] : Steps(choice).all()) {
    if (!check_choice(evaluator.problem(), to, allow_slow_tp).ok()) continue;
    const Estimate estimate = evaluator.estimate(to);
    const Screened screened{estimate.step_s, estimate.worst().total()};
    changes.push_back({std::move(what), to, screened, screened.memory - memory});
  }
  std::ranges::stable_sort(changes, {}, [](const Change& change) { return change.screened.time; });
  return changes;
}

std::vector<std::pair<std::string, double>> named_parts(const TimeParts& p) {
  std::vector<std::pair<std::string, double>> parts{{"products (GEMM)", p.gemm},
                                                    {"attention", p.attention},
                                                    {"bound by memory or launches", p.memory},
                                                    {"tensor axis, exposed", p.tensor},
                                                    {"pipeline sends", p.pipeline},
                                                    {"bubble", p.bubble},
                                                    {"data axis, exposed", p.data},
                                                    {"parameter gathers, exposed", p.gathers},
                                                    {"optimizer", p.optimizer},
                                                    {"overhead", p.overhead}};
  std::erase_if(parts, [](const auto& part) { return part.second <= 0; });
  std::ranges::stable_sort(parts, std::greater<>{}, [](const auto& part) { return part.second; });
  return parts;
}

std::string what_binds(const Estimate& estimate, double memory) {
  const auto parts = named_parts(estimate.parts);
  std::string text = fmt::format("{} {:.0f} % of the step", parts[0].first, 100 * parts[0].second / estimate.step_s);
  if (parts.size() > 1) {
    text += fmt::format(", then {} {:.0f} %", parts[1].first, 100 * parts[1].second / estimate.step_s);
  }
  const double free = memory - estimate.worst().total();
  text += fmt::format("; memory: {} of {} {}", gigabytes(free < 0 ? -free : free), gigabytes(memory),
                      free < 0 ? "are missing" : "are free");
  return text;
}

namespace {

// Degrees that fill the devices together with the given ones, where there are any: what a refusal then names is a
// value that was given.
void complete_degrees(const Problem& problem, const Wanted& wanted, bool allow_slow_tp, Choice& choice) {
  const auto devices = static_cast<int>(problem.cluster.devices());
  choice.tp = wanted.tp.value_or(wanted.sequence_parallel.value_or(false) ? 2 : 1);
  choice.pp = wanted.pp.value_or(wanted.interleave.value_or(1) > 1 ? 2 : 1);
  const std::int64_t replica = std::int64_t{choice.tp} * choice.pp;
  choice.dp = wanted.dp.value_or(static_cast<int>(std::max<std::int64_t>(1, devices / replica)));
  if (!wanted.dp || devices % *wanted.dp != 0) return;
  const int per_replica = devices / *wanted.dp;
  for (int tp : legal_tensor_degrees(problem, devices, allow_slow_tp)) {
    if (per_replica % tp != 0 || (wanted.tp && *wanted.tp != tp)) continue;
    const int pp = per_replica / tp;
    if (pp > problem.config.layers || (wanted.pp && *wanted.pp != pp)) continue;
    choice.tp = tp;
    choice.pp = pp;
    return;
  }
}

// Why the search has no layout like this one, whose degrees and batch are legal.
Failure not_searched(const Problem& problem, const Wanted& wanted, const Choice& choice) {
  if (wanted.zero.value_or(0) > 0 && choice.dp == 1) {
    return {.option = "layout.zero",
            .value = fmt::format("{}", *wanted.zero),
            .rule = "one data rank has nobody to share its state with",
            .nearest = "0"};
  }
  if (wanted.schedule == plan::ScheduleKind::kInterleaved && choice.pp > 1) {
    return {.option = "layout.schedule",
            .value = "interleaved",
            .rule = fmt::format("needs at least 2 chunks a stage, pp x interleave at most the layers ({}), and "
                                "micro-batches that pp ({}) divides",
                                problem.config.layers, choice.pp),
            .nearest = "1f1b"};
  }
  return {.option = "layout", .value = "", .rule = "no legal layout has all of these values", .nearest = ""};
}

}  // namespace

WhyNot why_not(const Problem& problem, const SearchOptions& options, const Wanted& wanted, Env& clock) {
  WhyNot answer;
  SearchOptions asked = options;
  asked.wanted = wanted;
  asked.wanted.allow_slow_tp = options.wanted.allow_slow_tp;
  asked.show = 1;
  Evaluator evaluator(problem);
  const SearchResult fitting = search(evaluator, asked, clock);
  if (fitting.winner()) {
    answer.best = *fitting.winner();
    return answer;
  }
  if (fitting.smallest) {
    answer.too_large = fitting.smallest;
    answer.best = evaluator.estimate(fitting.smallest->choice);
    return answer;
  }
  const std::int64_t devices = problem.cluster.devices();
  if (wanted.dp && devices % *wanted.dp != 0) {
    answer.illegal = Failure{.option = "layout.dp",
                             .value = fmt::format("{}", *wanted.dp),
                             .rule = fmt::format("must divide the devices ({})", format_exact(devices)),
                             .nearest = nearest_of(divisors(static_cast<int>(devices)), *wanted.dp)};
    return answer;
  }
  if (wanted.interleave && !wanted.pp && 2 * std::int64_t{*wanted.interleave} > problem.config.layers) {
    answer.illegal =
        Failure{.option = "layout.interleave",
                .value = fmt::format("{}", *wanted.interleave),
                .rule = fmt::format("with 2 stages or more, pp x interleave must be at most the layers ({})",
                                    problem.config.layers),
                .nearest = fmt::format("{}", std::max<std::int64_t>(1, problem.config.layers / 2))};
    return answer;
  }
  Choice choice = choice_of(wanted, static_cast<int>(devices));
  complete_degrees(problem, wanted, options.wanted.allow_slow_tp, choice);
  const Status legal = check_choice(problem, choice, options.wanted.allow_slow_tp);
  answer.illegal = legal.ok() ? not_searched(problem, wanted, choice) : legal.failure();
  return answer;
}

AxisAdvice axis_advice(const Problem& problem, double memory) {
  AxisAdvice advice;
  Problem one = problem;
  one.cluster = cluster::with_devices(problem.cluster, 1).or_throw();
  one.global_batch = 1;
  Evaluator evaluator(one);
  const Choice alone{.recompute = model::Recompute::kFull};
  const LayerCosts& layers = evaluator.layer_costs(1, false, 1, model::Recompute::kFull);
  const StateBytes state = state_bytes(real(layers.elements.layer), 1, 0, one.inputs);
  advice.one_device = evaluator.screen(alone).memory;
  advice.one_layer =
      state.sum() + layers.activations.layer.kept + layers.activations.layer.backward + layers.fixed.workspace;
  const std::int64_t devices = problem.cluster.devices();
  if (advice.one_device <= memory) {
    advice.axis = "data";
    advice.sentence = fmt::format(
        "it fits on one device ({} of {}), so the question is speed: data parallelism; each rank works on its own part "
        "of the batch, and gradients are summed once a step",
        gigabytes(advice.one_device), gigabytes(memory));
    return advice;
  }
  if (advice.one_layer > memory) {
    advice.axis = "tensor";
    advice.sentence = fmt::format(
        "one layer with its state and activations needs {} of {}: a layer is too big, so split layers: tensor "
        "parallelism, inside a host",
        gigabytes(advice.one_layer), gigabytes(memory));
    return advice;
  }
  for (int zero = 1; zero <= 3; ++zero) {
    Choice sharded = alone;
    sharded.zero = zero;
    sharded.dp = static_cast<int>(devices);
    sharded.reduce = plan::default_reduce(zero);
    Problem many = problem;
    many.global_batch = devices;
    if (Evaluator(many).screen(sharded).memory > memory) continue;
    advice.axis = "zero";
    advice.sentence = fmt::format(
        "the training state is what does not fit ({} with one sequence, of {}), each layer does ({}): shard it over "
        "the "
        "data ranks: ZeRO {} is the first stage that fits on {} devices",
        gigabytes(advice.one_device), gigabytes(memory), gigabytes(advice.one_layer), zero, format_exact(devices));
    return advice;
  }
  advice.axis = "pipeline";
  advice.sentence = fmt::format(
      "each layer fits ({} of {}), all of them do not, sharded over {} data ranks or not: the model is too deep, so "
      "cut "
      "it into stages: pipeline parallelism, with tensor parallelism inside hosts",
      gigabytes(advice.one_layer), gigabytes(memory), format_exact(devices));
  return advice;
}

}  // namespace trireme::planner
