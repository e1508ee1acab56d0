#pragma once

// A decoder layer, pre-norm, gpt2 and llama alike: x + attention(norm1(x)), then + mlp(norm2(.)). Stateless: weights
// and buffers come in as views. The three backward passes are apart, so that schedules may separate them.
//
// Tensor parallelism: query, key, value, gate and up are column-parallel, the two output projections row-parallel;
// their partial sums are added over the tensor ranks (two sums forward, two in backward-input). With sequence
// parallelism tensors of the residual stream, [T, h] here, are of this rank's rows (token_rows.h).

#include "engine/nn/context.h"

namespace trireme::nn {

// Reads saved[kInput]; fills every other forward entry of the activation table; out: [T, h].
void decoder_forward(const UnitContext& context, const WeightViews& weights, const SavedViews& saved,
                     kernels::TensorView out);

// Makes the dropped entries again, the same bits. kSelective: norm outputs and the MLP's activation output, from what
// is kept; kFull: everything, from kInput.
void decoder_recompute(const UnitContext& context, const WeightViews& weights, const SavedViews& saved,
                       model::Recompute recompute);

// From saved[kOutputGradient] to d_input [T, h]; leaves the gradients of the projections' outputs for the weight pass.
// The norms' weight gradients are taken here, where their output gradients exist.
void decoder_backward_input(const UnitContext& context, const WeightViews& weights, const SavedViews& saved,
                            kernels::TensorView d_input, GradientSink& sink);

// Gradients of the projections' weights and biases. Reads no weight: they may be released by then.
void decoder_backward_weight(const UnitContext& context, const SavedViews& saved, GradientSink& sink);

}  // namespace trireme::nn
