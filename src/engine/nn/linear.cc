#include "engine/nn/linear.h"

namespace trireme::nn {

using kernels::ConstTensorView;
using kernels::Gemm;
using kernels::TensorView;

LinearLayout linear_layout(const model::Config& config) {
  return config.family == model::Family::kGpt2 ? LinearLayout::kInputFirst : LinearLayout::kOutputFirst;
}

void linear_forward(kernels::Kernels& kernels, LinearLayout layout, ConstTensorView x, ConstTensorView weight,
                    ConstTensorView bias, TensorView y) {
  kernels.gemm(Gemm{.a = x, .b = weight, .transpose_b = layout == LinearLayout::kOutputFirst, .c = y});
  if (!bias.empty()) kernels.add_bias(y, bias);
}

void linear_backward_input(kernels::Kernels& kernels, LinearLayout layout, ConstTensorView d_y, ConstTensorView weight,
                           TensorView d_x, bool accumulate) {
  kernels.gemm(Gemm{
      .a = d_y, .b = weight, .transpose_b = layout == LinearLayout::kInputFirst, .c = d_x, .accumulate = accumulate});
}

void linear_backward_weight(kernels::Kernels& kernels, LinearLayout layout, ConstTensorView x, ConstTensorView d_y,
                            GradientSink& sink, model::Role weight) {
  const GradientSink::Target target = sink.open(weight);
  const bool input_first = layout == LinearLayout::kInputFirst;
  kernels.gemm(Gemm{.a = input_first ? x : d_y,
                    .transpose_a = true,
                    .b = input_first ? d_y : x,
                    .c = target.view,
                    .accumulate = target.accumulate});
  sink.close(weight);
}

void linear_backward_bias(kernels::Kernels& kernels, ConstTensorView d_y, GradientSink& sink, model::Role bias) {
  const GradientSink::Target target = sink.open(bias);
  kernels.column_sum(d_y, target.view, target.accumulate);
  sink.close(bias);
}

}  // namespace trireme::nn
