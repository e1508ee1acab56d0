#include "planner/layer_cost.h"

#include <algorithm>
#include <cmath>

namespace trireme::planner {
namespace {

using model::Recompute;

double real(std::int64_t value) { return static_cast<double>(value); }

// What the passes of one (tensor degree, micro-batch) have in common.
class Costs {
 public:
  Costs(const Problem& problem, int tp, bool sequence_parallel, std::int64_t micro_batch)
      : problem_(problem),
        config_(problem.config),
        tp_(tp),
        sequence_parallel_(sequence_parallel),
        tokens_(real(micro_batch * problem.sequence)),
        hidden_(real(config_.hidden)),
        query_(real(config_.query_width()) / tp),
        kv_(real(config_.kv_width()) / std::min<double>(tp, real(config_.kv_heads))),
        ffn_(real(config_.ffn) / tp),
        vocabulary_(std::ceil(real(config_.vocabulary) / tp)),
        memory_rate_(problem.memory_bytes_per_s()) {
    const CollectiveCost cost =
        collective_cost(CollectiveOp::kAllReduce, CollectiveAlgorithm::kRing, residual_bytes(problem, micro_batch),
                        tensor_place(problem, tp), problem.links());
    exchange_ = cost.time.count * (1.0 - problem.framework.tensor_overlap);
  }

  UnitTimes all(Recompute recompute) const {
    UnitTimes times;
    times.embedding = embedding();
    times.layer = layer(recompute);
    times.head = head();
    return times;
  }

 private:
  UnitTime embedding() const {
    const double traffic = 2 * tokens_ * hidden_ * problem_.element.weight / memory_rate_;
    UnitTime time;
    time.forward = {.memory = traffic, .tensor = tp_ > 1 ? exchange_ : 0.0};
    time.backward_weight = {.memory = traffic};
    return time;
  }

  PassTime projections() const {
    const double up = (config_.gated_mlp ? 2.0 : 1.0) * ffn_;
    return {.gemm = gemm_seconds(problem_, tokens_, query_ + 2 * kv_, hidden_) +
                    gemm_seconds(problem_, tokens_, hidden_, query_) + gemm_seconds(problem_, tokens_, up, hidden_) +
                    gemm_seconds(problem_, tokens_, hidden_, ffn_)};
  }
  // Products of the backward for the input: the depth is the forward's columns; for the weight: it is the tokens.
  double input_gemms() const {
    const double up = (config_.gated_mlp ? 2.0 : 1.0) * ffn_;
    return gemm_seconds(problem_, tokens_, hidden_, query_ + 2 * kv_) +
           gemm_seconds(problem_, tokens_, query_, hidden_) + gemm_seconds(problem_, tokens_, hidden_, up) +
           gemm_seconds(problem_, tokens_, ffn_, hidden_);
  }
  double weight_gemms() const {
    const double up = (config_.gated_mlp ? 2.0 : 1.0) * ffn_;
    return gemm_seconds(problem_, hidden_, query_ + 2 * kv_, tokens_) +
           gemm_seconds(problem_, query_, hidden_, tokens_) + gemm_seconds(problem_, hidden_, up, tokens_) +
           gemm_seconds(problem_, ffn_, hidden_, tokens_);
  }

  // Scores and values: 4 T s a d flops; a fused kernel skips what the causal mask hides. An unfused one also moves the
  // scores through memory about six times. Backward makes four products of forward's two, five where the scores are
  // made again.
  PassTime attention(double flops_factor) const {
    const double scores = tokens_ * real(problem_.sequence);
    const double flops = flops_factor * 4.0 * scores * query_;
    const double rate = problem_.peak_flops_per_s() * problem_.device.attention_efficiency;
    if (problem_.framework.fused_attention) return {.attention = 0.5 * flops / rate};
    const double heads = real(config_.heads) / tp_;
    return {.attention = flops / rate,
            .memory = flops_factor * 6.0 * scores * heads * problem_.element.weight / memory_rate_};
  }

  // Norms, residuals and biases read and write the residual stream about ten times, the activation its width three
  // times (gated: four), positions queries and keys twice.
  double elementwise() const {
    const double stream = 10.0 * hidden_ / (sequence_parallel_ ? tp_ : 1);
    const double inner = (config_.gated_mlp ? 4.0 : 3.0) * ffn_ + 2.0 * (query_ + kv_);
    return tokens_ * (stream + inner) * problem_.element.weight / memory_rate_;
  }

  PassTime at_least_launches(PassTime pass, double kernels) const {
    const double least = kernels * problem_.device.kernel_launch.count;
    const double busy = pass.gemm + pass.attention + pass.memory;
    if (busy < least) pass.memory += least - busy;
    return pass;
  }

  UnitTime layer(Recompute recompute) const {
    const double kernels = problem_.framework.kernels_per_layer;
    const double exchange = tp_ > 1 ? 2 * exchange_ : 0.0;
    UnitTime time;
    time.forward = projections() + attention(1.0) + PassTime{.memory = elementwise(), .tensor = exchange};
    time.forward = at_least_launches(time.forward, kernels);
    time.backward_input = PassTime{.gemm = input_gemms()} + attention(problem_.framework.fused_attention ? 2.5 : 2.0) +
                          PassTime{.memory = 2 * elementwise(), .tensor = exchange};
    time.backward_input = at_least_launches(time.backward_input, kernels);
    time.backward_weight = at_least_launches({.gemm = weight_gemms()}, kernels);
    time.backward_input = time.backward_input + again(recompute, time.forward);
    return time;
  }
  // What recomputation repeats. Selective: attention's core where its scores would be kept, else what is elementwise.
  PassTime again(Recompute recompute, const PassTime& forward) const {
    if (recompute == Recompute::kNone) return {};
    if (recompute == Recompute::kFull) return forward;
    if (!problem_.framework.fused_attention) return attention(1.0);
    if (problem_.framework.activations == ActivationSet::kMegatron) return {};
    return {.memory = elementwise()};
  }

  UnitTime head() const {
    const double logits = tokens_ * vocabulary_ * real(dtype_size(DType::kF32)) / memory_rate_;
    UnitTime time;
    time.forward = {.gemm = gemm_seconds(problem_, tokens_, vocabulary_, hidden_), .memory = 3 * logits};
    time.backward_input = {.gemm = gemm_seconds(problem_, tokens_, hidden_, vocabulary_),
                           .memory = 2 * logits,
                           .tensor = tp_ > 1 ? exchange_ : 0.0};
    time.backward_weight = {.gemm = gemm_seconds(problem_, vocabulary_, hidden_, tokens_)};
    return time;
  }

  const Problem& problem_;
  const model::Config& config_;
  int tp_;
  bool sequence_parallel_;
  double tokens_, hidden_, query_, kv_, ffn_, vocabulary_;
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

UnitTimes unit_times(const Problem& problem, int tp, bool sequence_parallel, std::int64_t micro_batch,
                     Recompute recompute) {
  return Costs(problem, tp, sequence_parallel, micro_batch).all(recompute);
}

}  // namespace trireme::planner
