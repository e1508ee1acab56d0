#include "planner/data_axis.h"

#include <algorithm>

namespace trireme::planner {
namespace {

double real(std::int64_t value) { return static_cast<double>(value); }
double gather_seconds(const Problem& problem, const AxisLines& lines, double elements) {
  return lines.gather(elements * problem.element.weight);
}

double reduce_seconds(const Problem& problem, const AxisLines& lines, const Choice& choice, double elements) {
  const double bytes = elements * problem.element.gradient;
  return lines.scatter(bytes) + (choice.zero > 0 ? 0.0 : lines.gather(bytes));
}

double exposed(const Problem& problem, double exchange, double compute) {
  return exchange - std::min(exchange * problem.framework.data_overlap, compute);
}

// Bytes that the update of one element touches: gradient read, moments read and written, master weights (or the
// weights) read and written, the compute weights written.
double update_bytes(const Problem& problem) {
  const double weights = plan::has_master_weights(problem.inputs) ? problem.element.weight : 0.0;
  return problem.element.gradient + 6 * problem.element.state + weights;
}

// The line through a collective's time at no bytes and at many.
Line line_of(CollectiveOp op, CollectiveAlgorithm algorithm, const GroupPlace& place, const Links& links) {
  constexpr double kMany = 1e9;
  const double fixed = collective_cost(op, algorithm, 0.0, place, links).time.count;
  const double many = collective_cost(op, algorithm, kMany, place, links).time.count;
  return {.fixed = fixed, .per_byte = (many - fixed) / kMany};
}

std::int64_t stage_stride(const Choice& choice) {
  return choice.order == plan::AxisOrder::kTpPpDp ? choice.tp : static_cast<std::int64_t>(choice.tp) * choice.dp;
}

// Backwards of the stages before: the time by which a stage is done earlier than the first.
double backwards_before(const PipelineCosts& costs, std::size_t stage) {
  double sum = 0;
  for (std::size_t s = 0; s < stage; ++s) sum += costs.stages[s].backward_input + costs.stages[s].backward_weight;
  return sum;
}

MicroBatchExchange exchange_behind(const Problem& problem, const AxisLines& lines, const Choice& choice,
                                   const UnitElements& elements, const StageShape& shape, double forward,
                                   double backward) {
  MicroBatchExchange exchange;
  if (!exchanges_each_micro_batch(choice)) return exchange;
  const double count = real(stage_elements(elements, shape, choice));
  if (choice.zero == 3) {
    const double gather = gather_seconds(problem, lines, count);
    exchange.gathers_forward = exposed(problem, gather, forward);
    exchange.gathers = exchange.gathers_forward;
    if (problem.framework.resharded_after_forward) {
      const double again = exposed(problem, gather, backward);
      exchange.gathers += again;
      backward -= std::min(backward, gather - again);
    }
  }
  if (choice.reduce == plan::ReduceWhen::kMicrobatch) {
    exchange.reduce = exposed(problem, reduce_seconds(problem, lines, choice, count), backward);
  }
  return exchange;
}

}  // namespace

AxisLines axis_lines(const Problem& problem, const Links& links, const Choice& choice) {
  const GroupPlace data = data_place(problem, choice);
  const int host = problem.cluster.devices_per_host;
  const GroupPlace inside{.size = 2, .per_host = 2, .sharing = host};
  // Across hosts, as many ranks send at once as a host has of the stage at its border.
  const auto border = static_cast<int>(std::min<std::int64_t>(stage_stride(choice), host));
  const GroupPlace between{.size = 2, .per_host = 1, .sharing = border};
  const auto line = [&](CollectiveOp op, CollectiveAlgorithm algorithm, const GroupPlace& place) {
    return line_of(op, algorithm, place, links);
  };
  return {.gather = line(CollectiveOp::kAllGather, CollectiveAlgorithm::kRing, data),
          .scatter = line(CollectiveOp::kReduceScatter, problem.framework.reduce, data),
          .send_inside = line(CollectiveOp::kSend, CollectiveAlgorithm::kRing, inside),
          .send_between = line(CollectiveOp::kSend, CollectiveAlgorithm::kRing, between)};
}

double send_seconds(const Problem& problem, const AxisLines& lines, const Choice& choice, double bytes, int stage,
                    int next) {
  const std::int64_t stride = stage_stride(choice);
  const std::int64_t host = problem.cluster.devices_per_host;
  const bool crosses = stage * stride / host != next * stride / host;
  return (crosses ? lines.send_between(bytes) : lines.send_inside(bytes)) * (1.0 - problem.framework.pipeline_overlap);
}

StageTimes work_times(const UnitTimes& units, const StageShape& shape) {
  const auto of = [&](PassTime UnitTime::*pass) {
    return shape.layers * (units.layer.*pass).sum() + (shape.embedding ? (units.embedding.*pass).sum() : 0.0) +
           (shape.head ? (units.head.*pass).sum() : 0.0);
  };
  return {.forward = of(&UnitTime::forward),
          .backward_input = of(&UnitTime::backward_input),
          .backward_weight = of(&UnitTime::backward_weight)};
}

bool exchanges_each_micro_batch(const Choice& choice) {
  return choice.dp > 1 && (choice.zero == 3 || choice.reduce == plan::ReduceWhen::kMicrobatch);
}

GroupPlace data_place(const Problem& problem, const Choice& choice) {
  const int host = problem.cluster.devices_per_host;
  const std::int64_t stride =
      choice.order == plan::AxisOrder::kTpPpDp ? static_cast<std::int64_t>(choice.tp) * choice.pp : choice.tp;
  const auto per_host = static_cast<int>(std::clamp<std::int64_t>(host / stride, 1, choice.dp));
  return {.size = choice.dp, .per_host = per_host, .sharing = std::min(host, choice.world())};
}

std::int64_t stage_elements(const UnitElements& elements, const StageShape& shape, const Choice& choice) {
  std::int64_t count = shape.layers * padded_elements(elements.layer, choice.dp);
  if (shape.embedding) count += padded_elements(elements.embedding, choice.dp);
  if (shape.head) {
    count += padded_elements(elements.head, choice.dp);
    count += padded_elements(tied_unit_elements(elements, choice.dp), choice.dp);
  }
  return count;
}

MicroBatchExchange micro_batch_exchange(const Problem& problem, const AxisLines& lines, const Choice& choice,
                                        const UnitElements& elements, const StageShape& shape, const UnitTimes& units) {
  const StageTimes work = work_times(units, shape);
  return exchange_behind(problem, lines, choice, elements, shape, work.forward,
                         work.backward_input + work.backward_weight);
}

void add_exchanges(const Problem& problem, const AxisLines& lines, const Choice& choice, const UnitElements& elements,
                   const StageShape& shape, StageTimes& times) {
  const MicroBatchExchange exchange = exchange_behind(problem, lines, choice, elements, shape, times.forward,
                                                      times.backward_input + times.backward_weight);
  times.forward += exchange.gathers_forward;
  times.backward_input += exchange.gathers - exchange.gathers_forward + exchange.reduce;
}

EndOfStep end_of_step(const Problem& problem, const AxisLines& lines, const Choice& choice,
                      const UnitElements& elements, const StagePlan& plan, const PipelineCosts& costs) {
  EndOfStep worst;
  for (int s : plan.extremes) {
    const auto index = static_cast<std::size_t>(s);
    const double before = choice.interleave == 1 ? backwards_before(costs, index) : 0.0;
    const StageTimes& times = costs.stages[index];
    const double count = real(stage_elements(elements, plan.stages[index], choice));
    EndOfStep end;
    if (choice.dp > 1 && choice.reduce == plan::ReduceWhen::kStep) {
      const double reduce = reduce_seconds(problem, lines, choice, count);
      end.data = std::max(0.0, exposed(problem, reduce, times.backward_input + times.backward_weight) - before);
    }
    if (choice.dp > 1 && (choice.zero == 1 || choice.zero == 2)) {
      const double gather = gather_seconds(problem, lines, count);
      end.gathers = exposed(problem, gather, times.forward);
    }
    const double owned = choice.zero >= 1 ? count / choice.dp : count;
    end.optimizer = owned * update_bytes(problem) / problem.memory_bytes_per_s();
    if (end.sum() > worst.sum()) worst = end;
  }
  if (elements.tied_head > 0 && choice.pp > 1) {
    // The copy's gradient to the embedding's stage, the weights back.
    const double bytes = real(elements.tied_head) * (problem.element.gradient + problem.element.weight);
    worst.data += lines.send_between(bytes);
  }
  return worst;
}

}  // namespace trireme::planner
