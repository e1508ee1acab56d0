#pragma once

// The embedding unit: token (and learned position) embeddings, vocabulary-parallel over the tensor ranks.

#include "engine/nn/context.h"

namespace trireme::nn {

// out: [T, h]; with sequence parallelism this rank's rows of it (token_rows.h), and so kOutputGradient.
void embedding_forward(const UnitContext& context, const WeightViews& weights, kernels::TensorView out);
// Reads saved[kOutputGradient], which it may change (embedding dropout is applied in place).
void embedding_backward_weight(const UnitContext& context, const SavedViews& saved, GradientSink& sink);

}  // namespace trireme::nn
