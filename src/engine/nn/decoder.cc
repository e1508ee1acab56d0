#include "engine/nn/decoder.h"

#include "engine/nn/attention.h"
#include "engine/nn/dropout.h"
#include "engine/nn/linear.h"
#include "engine/nn/norm.h"
#include "engine/nn/token_rows.h"

namespace trireme::nn {
namespace {

using kernels::ConstTensorView;
using kernels::TensorView;
using model::Role;
using model::Saved;

kernels::ActivationType activation_type(const model::Config& config) {
  switch (config.activation) {
    case model::Activation::kGeluTanh:
      return kernels::ActivationType::kGeluTanh;
    case model::Activation::kSilu:
      return kernels::ActivationType::kSilu;
    case model::Activation::kRelu:
      return kernels::ActivationType::kRelu;
  }
  TRIREME_CHECK(false, "activation {}", static_cast<int>(config.activation));
}

DropoutMask attention_output_mask(const UnitContext& context) {
  return DropoutMask(context, "attention output", context.config.residual_dropout, context.config.hidden);
}
DropoutMask mlp_output_mask(const UnitContext& context) {
  return DropoutMask(context, "mlp output", context.config.residual_dropout, context.config.hidden);
}

// out = residual + dropout(x W + b), the sum over tensor ranks taken before bias and dropout.
void row_parallel_residual(const UnitContext& context, ConstTensorView x, ConstTensorView weight, ConstTensorView bias,
                           ConstTensorView residual, const DropoutMask& mask, TensorView out) {
  kernels::Kernels& kernels = context.kernels();
  const Workspace::Scope scope(context.workspace);
  const TensorView parts = rows_to_sum(context, out);
  linear_forward(kernels, linear_layout(context.config), x, weight, ConstTensorView{}, parts);
  kernels.residual_add(out, residual, sum_own_rows(context, parts), bias, mask.spec());
}

// norm1, attention and its residual: fills entries up to kMiddle.
void attention_half(const UnitContext& context, const WeightViews& weights, const SavedViews& saved) {
  norm_forward(context, kNorm1, weights, saved);
  attention_forward(context, weights, saved);
  row_parallel_residual(context, saved[Saved::kAttentionOutput], weights[Role::kAttentionOutputWeight],
                        weights[Role::kAttentionOutputBias], saved[Saved::kInput], attention_output_mask(context),
                        saved[Saved::kMiddle]);
}

void activate(const UnitContext& context, const SavedViews& saved) {
  context.kernels().activation_forward(activation_type(context.config), saved[Saved::kGate], saved[Saved::kUp],
                                       saved[Saved::kActivated]);
}

// norm2 and the MLP up to its down projection: fills the other entries.
void mlp_inside(const UnitContext& context, const WeightViews& weights, const SavedViews& saved) {
  kernels::Kernels& kernels = context.kernels();
  const LinearLayout layout = linear_layout(context.config);
  norm_forward(context, kNorm2, weights, saved);
  const Workspace::Scope scope(context.workspace);
  const ConstTensorView x = all_rows(context, saved[Saved::kNorm2Output]);
  if (context.config.gated_mlp) {
    linear_forward(kernels, layout, x, weights[Role::kGateWeight], weights[Role::kGateBias], saved[Saved::kGate]);
  }
  linear_forward(kernels, layout, x, weights[Role::kUpWeight], weights[Role::kUpBias], saved[Saved::kUp]);
  activate(context, saved);
}

// The gradient of a row-parallel projection's output: dropout's backward, into `kept`, or d_out itself.
ConstTensorView projection_gradient(const UnitContext& context, const DropoutMask& mask, ConstTensorView d_out,
                                    TensorView kept) {
  if (kept.empty()) return d_out;
  if (mask.active()) {
    context.kernels().apply_dropout(kept, d_out, mask.spec());
  } else {
    context.kernels().copy(d_out, kept);
  }
  return kept;
}

// The same view for the weight pass.
ConstTensorView kept_or(const SavedViews& saved, Saved kept, Saved otherwise) {
  return saved[kept].empty() ? saved[otherwise] : saved[kept];
}

// From the output gradient to kMiddleGradient.
void mlp_backward_input(const UnitContext& context, const WeightViews& weights, const SavedViews& saved,
                        GradientSink& sink) {
  kernels::Kernels& kernels = context.kernels();
  const LinearLayout layout = linear_layout(context.config);
  const ConstTensorView d_out = saved[Saved::kOutputGradient];
  const ConstTensorView d_down =
      projection_gradient(context, mlp_output_mask(context), d_out, saved[Saved::kDownGradient]);
  const TensorView d_up = saved[Saved::kUpGradient];
  const TensorView d_gate = saved[Saved::kGateGradient];
  {
    const Workspace::Scope scope(context.workspace);
    linear_backward_input(kernels, layout, all_rows(context, d_down), weights[Role::kDownWeight], d_up, false);
  }
  kernels.activation_backward(activation_type(context.config), d_up, saved[Saved::kGate], saved[Saved::kUp], d_gate,
                              d_up);

  const Workspace::Scope scope(context.workspace);
  const TensorView d_norm = context.workspace.take(context.tokens(), context.config.hidden, context.dtype);
  linear_backward_input(kernels, layout, d_up, weights[Role::kUpWeight], d_norm, false);
  if (!d_gate.empty()) linear_backward_input(kernels, layout, d_gate, weights[Role::kGateWeight], d_norm, true);
  norm_backward(context, kNorm2, weights, saved, sum_own_rows(context, d_norm), d_out, saved[Saved::kMiddleGradient],
                sink);
}

}  // namespace

void decoder_forward(const UnitContext& context, const WeightViews& weights, const SavedViews& saved, TensorView out) {
  attention_half(context, weights, saved);
  mlp_inside(context, weights, saved);
  row_parallel_residual(context, saved[Saved::kActivated], weights[Role::kDownWeight], weights[Role::kDownBias],
                        saved[Saved::kMiddle], mlp_output_mask(context), out);
}

void decoder_recompute(const UnitContext& context, const WeightViews& weights, const SavedViews& saved,
                       model::Recompute recompute) {
  TRIREME_CHECK(recompute != model::Recompute::kNone);
  if (recompute == model::Recompute::kFull) {
    attention_half(context, weights, saved);
    mlp_inside(context, weights, saved);
    return;
  }
  norm_remake(context, kNorm1, weights, saved);
  norm_remake(context, kNorm2, weights, saved);
  activate(context, saved);
}

void decoder_backward_input(const UnitContext& context, const WeightViews& weights, const SavedViews& saved,
                            TensorView d_input, GradientSink& sink) {
  kernels::Kernels& kernels = context.kernels();
  const LinearLayout layout = linear_layout(context.config);
  mlp_backward_input(context, weights, saved, sink);

  const ConstTensorView d_middle = saved[Saved::kMiddleGradient];
  const ConstTensorView d_projection = projection_gradient(context, attention_output_mask(context), d_middle,
                                                           saved[Saved::kAttentionOutputProjectionGradient]);
  {
    const Workspace::Scope scope(context.workspace);
    const TensorView d_attention =
        context.workspace.take(context.tokens(), context.widths.heads * context.config.head_dim, context.dtype);
    {
      const Workspace::Scope gathered(context.workspace);
      linear_backward_input(kernels, layout, all_rows(context, d_projection), weights[Role::kAttentionOutputWeight],
                            d_attention, false);
    }
    attention_backward_core(context, saved, d_attention);
  }
  const Workspace::Scope scope(context.workspace);
  const TensorView d_norm = context.workspace.take(context.tokens(), context.config.hidden, context.dtype);
  projections_backward_input(context, weights, saved, d_norm);
  norm_backward(context, kNorm1, weights, saved, sum_own_rows(context, d_norm), d_middle, d_input, sink);
}

void decoder_backward_weight(const UnitContext& context, const SavedViews& saved, GradientSink& sink) {
  kernels::Kernels& kernels = context.kernels();
  const LinearLayout layout = linear_layout(context.config);
  // A bias behind the sum is whole on every rank: under sequence parallelism its gradient is of this rank's rows.
  const auto row_parallel = [&](Saved x, ConstTensorView d_y, Role weight, Role bias, bool has_bias) {
    const Workspace::Scope scope(context.workspace);
    linear_backward_weight(kernels, layout, saved[x], all_rows(context, d_y), sink, weight);
    if (has_bias) linear_backward_bias(kernels, d_y, sink, bias);
  };
  const bool mlp_bias = context.config.mlp_bias;
  row_parallel(Saved::kActivated, kept_or(saved, Saved::kDownGradient, Saved::kOutputGradient), Role::kDownWeight,
               Role::kDownBias, mlp_bias);
  {
    const Workspace::Scope scope(context.workspace);
    const ConstTensorView x = all_rows(context, saved[Saved::kNorm2Output]);
    const auto column_parallel = [&](ConstTensorView d_y, Role weight, Role bias) {
      linear_backward_weight(kernels, layout, x, d_y, sink, weight);
      if (mlp_bias) linear_backward_bias(kernels, d_y, sink, bias);
    };
    column_parallel(saved[Saved::kUpGradient], Role::kUpWeight, Role::kUpBias);
    if (context.config.gated_mlp) column_parallel(saved[Saved::kGateGradient], Role::kGateWeight, Role::kGateBias);
  }
  row_parallel(Saved::kAttentionOutput,
               kept_or(saved, Saved::kAttentionOutputProjectionGradient, Saved::kMiddleGradient),
               Role::kAttentionOutputWeight, Role::kAttentionOutputBias, context.config.attention_output_bias);
  projections_backward_weight(context, saved, sink);
}

}  // namespace trireme::nn
