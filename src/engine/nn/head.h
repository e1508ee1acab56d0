#pragma once

// The head unit: final norm, output projection, cross-entropy. The logits exist for a block of rows at a time; loss,
// their gradient, and both gradients of the projection are taken in one pass over a block, in the backward-input pass
// (docs/decisions/0003). The forward pass is the norm alone. With sequence parallelism the norm and d_input are of this
// rank's rows (token_rows.h); logits and losses are of all.

#include <functional>

#include "engine/nn/context.h"

namespace trireme::nn {

// Static buffers of the loss (class logits and loss).
struct LossBuffers {
  kernels::TensorView logits;     // [logit_rows, local vocabulary]
  kernels::TensorView row_terms;  // [3, logit_rows]: maximum, sum of exponentials, target's logit
  kernels::TensorView losses;     // [1, T]: of every token
};

// How many of the targets bear a loss.
std::int64_t counted_targets(std::span<const std::int32_t> targets);

void head_forward(const UnitContext& context, const WeightViews& weights, const SavedViews& saved);
void head_recompute(const UnitContext& context, const WeightViews& weights, const SavedViews& saved,
                    model::Recompute recompute);

// Losses of all tokens, head weight gradient, and d_input [T, h]. loss_scale: 1 / (tokens of the global batch that
// bear a loss); it enters the gradient of the logits, and nothing divides later. The sink's kHeadWeight is the tied
// accumulator where embeddings are tied.
void head_backward_input(const UnitContext& context, const WeightViews& weights, const SavedViews& saved,
                         const LossBuffers& loss, double loss_scale, kernels::TensorView d_input, GradientSink& sink);

// Losses of all tokens, nothing else.
void head_loss(const UnitContext& context, const WeightViews& weights, const SavedViews& saved,
               const LossBuffers& loss);

// Calls `take` with each block's first row and its logits of this rank's vocabulary rows.
void head_logits(const UnitContext& context, const WeightViews& weights, const SavedViews& saved,
                 kernels::TensorView logits, const std::function<void(std::int64_t, kernels::ConstTensorView)>& take);

}  // namespace trireme::nn
