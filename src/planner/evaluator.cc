#include "planner/evaluator.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/check.h"
#include "model/flops.h"

namespace trireme::planner {
namespace {

using model::Recompute;
using plan::ScheduleKind;

double real(std::int64_t value) { return static_cast<double>(value); }

StagePlan make_stage_plan(const model::Config& config, int pp, int interleave) {
  StagePlan plan;
  plan.pp = pp;
  plan.interleave = interleave;
  plan.chunk_layers = plan::balanced_chunks(config, pp * interleave, config.max_positions);
  plan.stages.resize(static_cast<std::size_t>(pp));
  std::vector<std::vector<int>> chunks(plan.stages.size());  // by stage
  for (std::size_t at = 0; at < plan.chunk_layers.size(); ++at) {
    StageShape& stage = plan.stages[at % plan.stages.size()];
    stage.layers += plan.chunk_layers[at];
    stage.last_chunk_layers = plan.chunk_layers[at];
    chunks[at % plan.stages.size()].push_back(plan.chunk_layers[at]);
  }
  for (int s = 0; interleave > 1 && s < pp; ++s) {
    const auto layers = [&](int rounds) {
      return interleaved_layers(pp, static_cast<std::int64_t>(rounds) * pp, s, chunks[static_cast<std::size_t>(s)]);
    };
    plan.held_layers.push_back({layers(1), layers(2), layers(3)});
  }
  plan.stages.front().embedding = true;
  plan.stages.back().head = true;
  // Activations in flight fall or rise evenly from stage to stage, so of the stages cut alike the first or the last
  // holds most; the ends hold embedding and head besides.
  std::map<std::vector<int>, std::pair<int, int>> by_size;
  for (int s = 0; s < pp; ++s) {
    if (s > 0 && s < pp - 1) {
      auto [entry, first] = by_size.try_emplace(chunks[static_cast<std::size_t>(s)], s, s);
      entry->second.second = s;
    }
  }
  plan.extremes = {0};
  if (pp > 1) plan.extremes.push_back(pp - 1);
  for (const auto& [cut, ends] : by_size) {
    plan.extremes.push_back(ends.first);
    if (ends.second != ends.first) plan.extremes.push_back(ends.second);
  }
  return plan;
}

}  // namespace

plan::Layout Choice::layout() const {
  plan::Layout layout;
  layout.tp = tp;
  layout.pp = pp;
  layout.dp = dp;
  layout.interleave = interleave;
  layout.schedule = schedule;
  layout.zero = zero;
  layout.recompute = recompute;
  layout.order = order;
  layout.sequence_parallel = sequence_parallel;
  layout.reduce = reduce;
  layout.prefetch = prefetch;
  return layout;
}

Choice choice_of(const plan::Layout& layout, std::int64_t micro_batch) {
  return {.tp = layout.tp,
          .pp = layout.pp,
          .dp = layout.dp,
          .interleave = layout.interleave,
          .micro_batch = micro_batch,
          .schedule = layout.schedule,
          .zero = layout.zero,
          .recompute = layout.recompute,
          .order = layout.order,
          .sequence_parallel = layout.sequence_parallel,
          .reduce = layout.reduce,
          .prefetch = layout.prefetch};
}

std::string describe(const Choice& choice) {
  std::string text = fmt::format("{}, micro-batch {}, recompute {}", plan::describe(choice.layout()),
                                 choice.micro_batch, model::recompute_name(choice.recompute));
  if (choice.order != plan::AxisOrder::kTpPpDp) text += fmt::format(", {}", plan::axis_order_name(choice.order));
  if (choice.reduce != plan::default_reduce(choice.zero)) {
    text += fmt::format(", reduce {}", plan::reduce_name(choice.reduce));
  }
  return text;
}

Evaluator::Evaluator(Problem problem)
    : problem_(std::move(problem)), links_(problem_.links()), units_(problem_.config) {}

const LayerCosts& Evaluator::layer_costs(int tp, bool sequence_parallel, std::int64_t micro_batch,
                                         Recompute recompute) {
  std::unique_ptr<LayerCosts>& entry = layers_[{tp, sequence_parallel, micro_batch, static_cast<int>(recompute)}];
  if (entry) return *entry;
  auto elements = elements_.find(tp);
  if (elements == elements_.end()) elements = elements_.emplace(tp, unit_elements(problem_, tp)).first;
  const auto [fixed, fresh] = fixed_.try_emplace({tp, sequence_parallel, micro_batch});
  if (fresh) fixed->second = fixed_buffers(problem_, units_, tp, sequence_parallel, micro_batch);
  const bool parts = sequence_parallel || problem_.framework.scattered_sends;
  entry = std::make_unique<LayerCosts>(
      LayerCosts{.elements = elements->second,
                 .activations = activation_buffers(problem_, units_, tp, sequence_parallel, micro_batch, recompute),
                 .fixed = fixed->second,
                 .times = unit_times(problem_, units_, tp, sequence_parallel, micro_batch, recompute),
                 .send_bytes = residual_bytes(problem_, micro_batch) / (parts ? tp : 1)});
  return *entry;
}

const StagePlan& Evaluator::stage_plan(int pp, int interleave) {
  std::unique_ptr<StagePlan>& entry = plans_[{pp, interleave}];
  if (!entry) entry = std::make_unique<StagePlan>(make_stage_plan(problem_.config, pp, interleave));
  return *entry;
}

std::vector<plan::ChunkTimes> Evaluator::chunk_times(const Choice& choice, const LayerCosts& layers,
                                                     const StagePlan& plan, const AxisLines& lines) const {
  const int last = static_cast<int>(plan.chunk_layers.size()) - 1;
  std::vector<plan::ChunkTimes> chunks;
  for (int at = 0; at <= last; ++at) {
    const int count = plan.chunk_layers[static_cast<std::size_t>(at)];
    const int stage = at % plan.pp;
    const StageShape shape{.layers = count, .last_chunk_layers = count, .embedding = at == 0, .head = at == last};
    StageTimes times = work_times(layers.times, shape);
    add_exchanges(problem_, lines, choice, layers.elements, shape, times);
    chunks.push_back(
        {.forward = times.forward,
         .backward_input = times.backward_input,
         .backward_weight = times.backward_weight,
         .send_activation = send_seconds(problem_, lines, choice, layers.send_bytes, stage, (stage + 1) % plan.pp),
         .send_gradient =
             send_seconds(problem_, lines, choice, layers.send_bytes, stage, (stage + plan.pp - 1) % plan.pp)});
  }
  return chunks;
}

void Evaluator::pipeline_costs(const Choice& choice, const LayerCosts& layers, const StagePlan& plan,
                               const AxisLines& lines, PipelineCosts& costs) const {
  costs.stages.assign(static_cast<std::size_t>(plan.pp), {});
  costs.first_chunk.clear();
  if (plan.interleave > 1) {
    interleaved_costs(choice, layers, plan, lines, costs);
  } else {
    stage_costs(choice, layers, plan, lines, costs);
  }
  const int m = static_cast<int>(micro_batches(choice));
  costs.time = pipeline_time(choice.schedule, m, costs.stages, costs.first_chunk);
}

void Evaluator::stage_costs(const Choice& choice, const LayerCosts& layers, const StagePlan& plan,
                            const AxisLines& lines, PipelineCosts& costs) const {
  const bool exchanges = exchanges_each_micro_batch(choice);
  for (std::size_t s = 0; s < costs.stages.size(); ++s) {
    StageTimes& times = costs.stages[s];
    times = work_times(layers.times, plan.stages[s]);
    if (exchanges) add_exchanges(problem_, lines, choice, layers.elements, plan.stages[s], times);
    const int stage = static_cast<int>(s);
    if (stage + 1 < plan.pp)
      times.forward += send_seconds(problem_, lines, choice, layers.send_bytes, stage, stage + 1);
    if (stage > 0) times.backward_input += send_seconds(problem_, lines, choice, layers.send_bytes, stage, stage - 1);
  }
}

void Evaluator::interleaved_costs(const Choice& choice, const LayerCosts& layers, const StagePlan& plan,
                                  const AxisLines& lines, PipelineCosts& costs) const {
  std::vector<plan::ChunkTimes> chunks = chunk_times(choice, layers, plan, lines);
  chunks.back().send_activation = 0;
  chunks.front().send_gradient = 0;
  for (std::size_t at = 0; at < chunks.size(); ++at) {
    const plan::ChunkTimes& c = chunks[at];
    const StageTimes times{.forward = c.forward + (plan.pp > 1 ? c.send_activation : 0.0),
                           .backward_input = c.backward_input + (plan.pp > 1 ? c.send_gradient : 0.0),
                           .backward_weight = c.backward_weight};
    if (at < costs.stages.size()) costs.first_chunk.push_back(times);
    StageTimes& stage = costs.stages[at % costs.stages.size()];
    stage.forward += times.forward;
    stage.backward_input += times.backward_input;
    stage.backward_weight += times.backward_weight;
  }
}

double Evaluator::step_time(const Choice& choice, const LayerCosts& layers, const StagePlan& plan,
                            const AxisLines& lines, const PipelineCosts& costs) const {
  const EndOfStep end = end_of_step(problem_, lines, choice, layers.elements, plan, costs);
  return (costs.time + end.sum()) * (1.0 + problem_.framework.step_overhead);
}

MemoryEstimate Evaluator::memory_of(const Choice& choice, const LayerCosts& layers, const StagePlan& plan,
                                    int stage) const {
  const std::int64_t m = micro_batches(choice);
  const StateChoice state{.zero = choice.zero,
                          .reduce_each_micro_batch = choice.reduce == plan::ReduceWhen::kMicrobatch,
                          .dp = choice.dp,
                          .pp = choice.pp,
                          .prefetch = choice.prefetch};
  const StageShape& shape = plan.stages[static_cast<std::size_t>(stage)];
  InFlight flight = in_flight(choice.schedule, choice.pp, choice.interleave, m, stage);
  if (choice.interleave > 1) {
    const auto rounds = static_cast<std::size_t>(std::min<std::int64_t>(3, m / choice.pp));
    flight.held[0].whole = plan.held_layers[static_cast<std::size_t>(stage)][rounds - 1] / shape.layers;
  }
  return stage_memory(problem_, layers.elements, layers.activations, layers.fixed, shape, state, flight);
}

double Evaluator::worst_memory(const Choice& choice, const LayerCosts& layers, const StagePlan& plan) const {
  double worst = 0;
  for (int stage : plan.extremes) worst = std::max(worst, memory_of(choice, layers, plan, stage).total());
  return worst;
}

Evaluator::Pieces Evaluator::pieces_of(const Choice& choice) {
  Pieces pieces{.layers = layer_costs(choice.tp, choice.sequence_parallel, choice.micro_batch, choice.recompute),
                .plan = stage_plan(choice.pp, choice.interleave),
                .lines = axis_lines(choice),
                .costs = {}};
  pipeline_costs(choice, pieces.layers, pieces.plan, pieces.lines, pieces.costs);
  return pieces;
}

double Evaluator::simulated(const Choice& choice, const Pieces& pieces) const {
  const int m = static_cast<int>(micro_batches(choice));
  const double time = simulated_pipeline_time(choice.schedule, choice.pp, choice.interleave, m,
                                              chunk_times(choice, pieces.layers, pieces.plan, pieces.lines));
  // The closed form is a bound, also of a long step that is only partly simulated.
  return std::max(time, pieces.costs.time);
}

Screened Evaluator::screen(const Choice& choice) {
  const Pieces pieces = pieces_of(choice);
  return {.time = step_time(choice, pieces.layers, pieces.plan, pieces.lines, pieces.costs),
          .memory = worst_memory(choice, pieces.layers, pieces.plan)};
}

double Evaluator::simulate(const Choice& choice) {
  Pieces pieces = pieces_of(choice);
  pieces.costs.time = simulated(choice, pieces);
  return step_time(choice, pieces.layers, pieces.plan, pieces.lines, pieces.costs);
}

Estimate Evaluator::estimate(const Choice& choice) {
  Pieces pieces = pieces_of(choice);
  Estimate estimate{.choice = choice, .parts = {}, .memory = {}};
  estimate.micro_batches = micro_batches(choice);
  estimate.closed_form_s = step_time(choice, pieces.layers, pieces.plan, pieces.lines, pieces.costs);
  pieces.costs.time = simulated(choice, pieces);
  estimate.step_s = step_time(choice, pieces.layers, pieces.plan, pieces.lines, pieces.costs);
  fill_parts(pieces, estimate);
  for (int stage = 0; stage < choice.pp; ++stage) {
    estimate.memory.push_back(memory_of(choice, pieces.layers, pieces.plan, stage));
    if (estimate.memory.back().total() > estimate.worst().total()) estimate.worst_stage = stage;
  }
  const double flops = model::model_flops(problem_.config, problem_.global_batch, problem_.sequence).count;
  estimate.mfu = flops / (estimate.step_s * choice.world() * problem_.peak_flops_per_s());
  estimate.tokens_per_s = real(problem_.global_batch) * real(problem_.sequence) / estimate.step_s;
  return estimate;
}

void Evaluator::fill_parts(const Pieces& pieces, Estimate& estimate) const {
  const auto& [layers, plan, lines, costs] = pieces;
  const double m = real(estimate.micro_batches);
  const auto busy = [](const StageTimes& t) { return t.forward + t.backward_input + t.backward_weight; };
  std::size_t busiest = 0;
  for (std::size_t s = 1; s < costs.stages.size(); ++s) {
    if (busy(costs.stages[s]) > busy(costs.stages[busiest])) busiest = s;
  }
  estimate.busiest_stage = static_cast<int>(busiest);
  const StageShape& shape = plan.stages[busiest];
  const auto sum = [](const UnitTime& t) { return t.forward + t.backward_input + t.backward_weight; };
  PassTime work = static_cast<double>(shape.layers) * sum(layers.times.layer);
  if (shape.embedding) work = work + sum(layers.times.embedding);
  if (shape.head) work = work + sum(layers.times.head);
  const MicroBatchExchange exchange =
      micro_batch_exchange(problem_, lines, estimate.choice, layers.elements, shape, layers.times);
  TimeParts& parts = estimate.parts;
  parts.gemm = m * work.gemm;
  parts.attention = m * work.attention;
  parts.memory = m * work.memory;
  parts.tensor = m * work.tensor;
  parts.data = m * exchange.reduce;
  parts.gathers = m * exchange.gathers;
  if (plan.pp > 1) {
    parts.pipeline = m * (busy(costs.stages[busiest]) - work.sum() - exchange.reduce - exchange.gathers);
  }
  parts.bubble = plan.pp > 1 ? costs.time - m * busy(costs.stages[busiest]) : 0.0;
  const EndOfStep end = end_of_step(problem_, lines, estimate.choice, layers.elements, plan, costs);
  parts.data += end.data;
  parts.gathers += end.gathers;
  parts.optimizer = end.optimizer;
  parts.overhead = estimate.step_s - (costs.time + end.sum());
}

}  // namespace trireme::planner
