#pragma once

// y = x W (+ b) and its gradients, for both layouts that Hugging Face uses. x: [T, in]; y: [T, out].

#include "engine/nn/context.h"

namespace trireme::nn {

// kInputFirst: W is [in, out] (gpt2's Conv1D); kOutputFirst: [out, in] (Linear).
enum class LinearLayout { kInputFirst, kOutputFirst };
LinearLayout linear_layout(const model::Config& config);

void linear_forward(kernels::Kernels& kernels, LinearLayout layout, kernels::ConstTensorView x,
                    kernels::ConstTensorView weight, kernels::ConstTensorView bias, kernels::TensorView y);

// d_x (+)= d_y W'.
void linear_backward_input(kernels::Kernels& kernels, LinearLayout layout, kernels::ConstTensorView d_y,
                           kernels::ConstTensorView weight, kernels::TensorView d_x, bool accumulate);

// W's gradient, to the sink.
void linear_backward_weight(kernels::Kernels& kernels, LinearLayout layout, kernels::ConstTensorView x,
                            kernels::ConstTensorView d_y, GradientSink& sink, model::Role weight);
// The bias's, the sum over the rows of d_y.
void linear_backward_bias(kernels::Kernels& kernels, kernels::ConstTensorView d_y, GradientSink& sink,
                          model::Role bias);

}  // namespace trireme::nn
