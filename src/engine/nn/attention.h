#pragma once

// Query, key and value of a decoder layer, whichever way the family stores them, and the attention core.

#include "engine/nn/context.h"

namespace trireme::nn {

// Projects saved[kNorm1Output] to query, key and value (with bias and rotary positions) and runs the core into
// saved[kAttentionOutput] and saved[kLogSumExp].
void attention_forward(const UnitContext& context, const WeightViews& weights, const SavedViews& saved);

// From d_attention_output [T, a d] to the gradients of the projections' outputs in `saved`.
void attention_backward_core(const UnitContext& context, const SavedViews& saved,
                             kernels::ConstTensorView d_attention_output);

// d_norm1_output, of all T rows: the sum over the three projections; this rank's part.
void projections_backward_input(const UnitContext& context, const WeightViews& weights, const SavedViews& saved,
                                kernels::TensorView d_norm1_output);

void projections_backward_weight(const UnitContext& context, const SavedViews& saved, GradientSink& sink);

}  // namespace trireme::nn
