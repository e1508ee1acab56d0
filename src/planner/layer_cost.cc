#include "planner/layer_cost.h"

#include <algorithm>
#include <vector>

#include "model/operation_cost.h"

namespace trireme::planner {
namespace {

using model::Recompute;

double real(std::int64_t value) { return static_cast<double>(value); }

// What the passes of one (tensor degree, micro-batch) have in common. A pass of a unit is the sum of its operations'.
class Costs {
 public:
  Costs(const Problem& problem, int tp, bool sequence_parallel, std::int64_t micro_batch)
      : problem_(problem),
        tp_(tp),
        sequence_parallel_(sequence_parallel),
        tokens_(real(micro_batch * problem.sequence)),
        memory_rate_(problem.memory_bytes_per_s()) {
    const CollectiveCost cost =
        collective_cost(CollectiveOp::kAllReduce, CollectiveAlgorithm::kRing, residual_bytes(problem, micro_batch),
                        tensor_place(problem, tp), problem.links());
    exchange_ = tp > 1 ? cost.time.count * (1.0 - problem.framework.tensor_overlap) : 0.0;
  }

  UnitTime unit(const model::UnitFlow& flow, Recompute recompute) const {
    UnitTime time;
    PassTime attention, elementwise;  // of the forward
    for (const model::Operation& operation : flow.operations) {
      const model::OperationCost cost = model::operation_cost(flow, operation, tp_);
      time = time + products(cost);
      attention = attention + scores(cost);
      // Outside of layers the look-up and the logits count, the rest is little beside them.
      const double elements =
          flow.kind == model::UnitKind::kDecoder ? cost.whole + stream(cost) + cost.cut : cost.whole;
      elementwise.memory += tokens_ * elements * problem_.element.weight / memory_rate_;
      if (operation.kind == model::OperationKind::kLoss) {
        const double logits = tokens_ * cost.products.front().columns * real(dtype_size(DType::kF32)) / memory_rate_;
        time.forward.memory += 3 * logits;
        time.backward_input.memory += 2 * logits;
      }
    }
    time.forward = time.forward + attention + elementwise;
    if (flow.kind == model::UnitKind::kEmbedding) {  // it has no input
      time.backward_weight = time.backward_weight + elementwise;
      return time;
    }
    time.backward_input = time.backward_input + backward_factor() * attention + 2.0 * elementwise;
    if (flow.kind != model::UnitKind::kDecoder) return time;
    for (PassTime UnitTime::*pass : {&UnitTime::forward, &UnitTime::backward_input, &UnitTime::backward_weight}) {
      time.*pass = at_least_launches(time.*pass, problem_.framework.kernels_per_layer);
    }
    time.backward_input = time.backward_input + again(recompute, time.forward, attention, elementwise);
    return time;
  }

 private:
  // Products of the backward for the input: the depth is the forward's columns; for the weight: it is the tokens.
  UnitTime products(const model::OperationCost& cost) const {
    UnitTime time;
    for (const model::Product& product : cost.products) {
      time.forward.gemm += gemm_seconds(problem_, tokens_, product.columns, product.depth);
      time.backward_input.gemm += gemm_seconds(problem_, tokens_, product.depth, product.columns);
      time.backward_weight.gemm += gemm_seconds(problem_, product.depth, product.columns, tokens_);
    }
    time.forward.tensor = cost.forward_sums * exchange_;
    time.backward_input.tensor = cost.backward_sums * exchange_;
    return time;
  }

  // Scores and values, 4 flops a query column and position; a fused kernel skips what the causal mask and a window
  // hide. An unfused one also moves the scores through memory about six times. Backward makes four products of
  // forward's two, five where the scores are made again.
  PassTime scores(const model::OperationCost& cost) const {
    const double all = real(problem_.sequence);
    const double rate = problem_.peak_flops_per_s() * problem_.device.attention_efficiency;
    if (problem_.framework.fused_attention) {
      const double window = cost.window > 0 ? std::min(real(cost.window), all) : all;
      const double seen = window - 0.5 * window * window / all;  // of a token, in the mean
      return {.attention = 4.0 * tokens_ * seen * cost.query_columns / rate};
    }
    return {.attention = 4.0 * tokens_ * all * cost.query_columns / rate,
            .memory = 6.0 * tokens_ * all * cost.heads * problem_.element.weight / memory_rate_};
  }
  double backward_factor() const { return problem_.framework.fused_attention ? 2.5 : 2.0; }

  double stream(const model::OperationCost& cost) const { return cost.stream / (sequence_parallel_ ? tp_ : 1); }

  PassTime at_least_launches(PassTime pass, double kernels) const {
    const double least = kernels * problem_.device.kernel_launch.count;
    const double busy = pass.gemm + pass.attention + pass.memory;
    if (busy < least) pass.memory += least - busy;
    return pass;
  }

  // What recomputation repeats. Selective: attention's core where its scores would be kept, else what is elementwise.
  PassTime again(Recompute recompute, const PassTime& forward, const PassTime& attention,
                 const PassTime& elementwise) const {
    if (recompute == Recompute::kNone) return {};
    if (recompute == Recompute::kFull) return forward;
    if (!problem_.framework.fused_attention) return attention;
    return problem_.framework.activations == ActivationSet::kMegatron ? PassTime{} : elementwise;
  }

  const Problem& problem_;
  int tp_;
  bool sequence_parallel_;
  double tokens_;
  double memory_rate_;
  double exchange_ = 0;
};

}  // namespace

double residual_bytes(const Problem& problem, std::int64_t micro_batch) {
  return real(micro_batch * problem.sequence) * real(problem.config.hidden) * problem.element.weight;
}

GroupPlace tensor_place(const Problem& problem, int tp) {
  const int host = problem.cluster.devices_per_host;
  return {.size = tp, .per_host = std::min(tp, host), .sharing = host};
}

double gemm_seconds(const Problem& problem, double rows, double columns, double depth) {
  const double half = problem.device.gemm_half_extent;
  const double shape = rows / (rows + half) * (columns / (columns + half)) * (depth / (depth + half));
  const double flops = 2.0 * rows * columns * depth;
  const double arithmetic = flops / (problem.peak_flops_per_s() * problem.device.gemm_efficiency * shape);
  const double traffic =
      (rows * columns + rows * depth + columns * depth) * problem.element.weight / problem.memory_bytes_per_s();
  return std::max(arithmetic, traffic);
}

UnitTimes unit_times(const Problem& problem, const ModelUnits& units, int tp, bool sequence_parallel,
                     std::int64_t micro_batch, Recompute recompute) {
  const Costs costs(problem, tp, sequence_parallel, micro_batch);
  UnitTimes times{.embedding = costs.unit(units.embedding().flow, recompute),
                  .layer = {},
                  .head = costs.unit(units.head().flow, recompute)};
  for (const ModelUnits::Unit& layer : units.layers()) {
    times.layer = times.layer + real(layer.count) / real(problem.config.layers) * costs.unit(layer.flow, recompute);
  }
  return times;
}

}  // namespace trireme::planner
