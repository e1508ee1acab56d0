#include "engine/nn/attention.h"

#include <cmath>

#include "base/attention_tile.h"
#include "engine/nn/dropout.h"
#include "engine/nn/linear.h"
#include "engine/nn/token_rows.h"

namespace trireme::nn {
namespace {

using kernels::TensorView;
using model::Role;
using model::Saved;

struct Qkv {
  TensorView query;
  TensorView key;
  TensorView value;
};

// The three parts, of the fused tensor or of three tensors.
Qkv parts(const UnitContext& context, const SavedViews& saved, Saved fused, Saved query, Saved key, Saved value) {
  if (saved[fused].empty()) return {saved[query], saved[key], saved[value]};
  const std::int64_t q = context.widths.heads * context.config.head_dim;
  const std::int64_t kv = context.widths.kv_heads * context.config.head_dim;
  return {kernels::column_range(saved[fused], 0, q), kernels::column_range(saved[fused], q, kv),
          kernels::column_range(saved[fused], q + kv, kv)};
}
Qkv forward_parts(const UnitContext& context, const SavedViews& saved) {
  return parts(context, saved, Saved::kQkv, Saved::kQuery, Saved::kKey, Saved::kValue);
}
Qkv gradient_parts(const UnitContext& context, const SavedViews& saved) {
  return parts(context, saved, Saved::kQkvGradient, Saved::kQueryGradient, Saved::kKeyGradient, Saved::kValueGradient);
}

void turn(const UnitContext& context, const Qkv& qkv, bool inverse) {
  if (context.config.position != model::PositionKind::kRotary) return;
  const std::int64_t d = context.config.head_dim;
  kernels::Kernels& kernels = context.kernels();
  kernels.rotary(qkv.query, context.widths.heads, d, context.rotary, context.sequence, inverse);
  kernels.rotary(qkv.key, context.widths.kv_heads, d, context.rotary, context.sequence, inverse);
}

// Head-major inside each sequence, as the kernels have it; the table counts it as [a, T].
TensorView log_sum_exp(const UnitContext& context, const SavedViews& saved) {
  const TensorView kept = saved[Saved::kLogSumExp];
  return kernels::make_view(kept.data, kept.dtype, context.sequences * context.widths.heads, context.sequence);
}

kernels::AttentionShape shape_of(const UnitContext& context, const DropoutMask& mask) {
  const double d = static_cast<double>(context.config.head_dim);
  return {.sequences = context.sequences,
          .sequence = context.sequence,
          .heads = context.widths.heads,
          .kv_heads = context.widths.kv_heads,
          .head_dim = context.config.head_dim,
          .scale = 1.0 / std::sqrt(d),
          .head_begin = context.head_begin,
          .dropout = mask.spec()};
}

struct Projection {
  Role weight;
  Role bias;
  TensorView output;
};

// The projections that the family has: one fused, or three.
std::vector<Projection> projections(const SavedViews& saved, Saved fused, const Qkv& qkv) {
  if (!saved[fused].empty()) return {{Role::kQkvWeight, Role::kQkvBias, saved[fused]}};
  return {{Role::kQueryWeight, Role::kQueryBias, qkv.query},
          {Role::kKeyWeight, Role::kKeyBias, qkv.key},
          {Role::kValueWeight, Role::kValueBias, qkv.value}};
}

DropoutMask attention_mask(const UnitContext& context) {
  return DropoutMask(context, "attention", context.config.attention_dropout, 0);
}

}  // namespace

void attention_forward(const UnitContext& context, const WeightViews& weights, const SavedViews& saved) {
  kernels::Kernels& kernels = context.kernels();
  const Qkv qkv = forward_parts(context, saved);
  {
    const Workspace::Scope scope(context.workspace);
    const kernels::ConstTensorView x = all_rows(context, saved[Saved::kNorm1Output]);
    for (const Projection& projection : projections(saved, Saved::kQkv, qkv)) {
      linear_forward(kernels, linear_layout(context.config), x, weights[projection.weight], weights[projection.bias],
                     projection.output);
    }
  }
  turn(context, qkv, false);

  const Workspace::Scope scope(context.workspace);
  const DropoutMask mask = attention_mask(context);
  kernels.attention_forward(
      {.shape = shape_of(context, mask),
       .q = qkv.query,
       .k = qkv.key,
       .v = qkv.value,
       .out = saved[Saved::kAttentionOutput],
       .log_sum_exp = log_sum_exp(context, saved),
       .scratch = context.workspace.take(context.rank.threads,
                                         attention_forward_scratch(context.sequence, context.config.head_dim),
                                         wide_dtype(context.dtype))});
}

void attention_backward_core(const UnitContext& context, const SavedViews& saved,
                             kernels::ConstTensorView d_attention_output) {
  const Qkv qkv = forward_parts(context, saved);
  const Qkv gradient = gradient_parts(context, saved);
  const Workspace::Scope scope(context.workspace);
  const DropoutMask mask = attention_mask(context);
  context.kernels().attention_backward(
      {.shape = shape_of(context, mask),
       .q = qkv.query,
       .k = qkv.key,
       .v = qkv.value,
       .out = saved[Saved::kAttentionOutput],
       .log_sum_exp = log_sum_exp(context, saved),
       .d_out = d_attention_output,
       .d_q = gradient.query,
       .d_k = gradient.key,
       .d_v = gradient.value,
       .scratch = context.workspace.take(context.rank.threads,
                                         attention_backward_scratch(context.sequence, context.config.head_dim),
                                         wide_dtype(context.dtype))});
  turn(context, gradient, true);
}

void projections_backward_input(const UnitContext& context, const WeightViews& weights, const SavedViews& saved,
                                kernels::TensorView d_norm1_output) {
  bool accumulate = false;
  for (const Projection& projection : projections(saved, Saved::kQkvGradient, gradient_parts(context, saved))) {
    linear_backward_input(context.kernels(), linear_layout(context.config), projection.output,
                          weights[projection.weight], d_norm1_output, accumulate);
    accumulate = true;
  }
}

void projections_backward_weight(const UnitContext& context, const SavedViews& saved, GradientSink& sink) {
  kernels::Kernels& kernels = context.kernels();
  const Workspace::Scope scope(context.workspace);
  const kernels::ConstTensorView x = all_rows(context, saved[Saved::kNorm1Output]);
  for (const Projection& projection : projections(saved, Saved::kQkvGradient, gradient_parts(context, saved))) {
    linear_backward_weight(kernels, linear_layout(context.config), x, projection.output, sink, projection.weight);
    if (context.config.attention_input_bias) linear_backward_bias(kernels, projection.output, sink, projection.bias);
  }
}

}  // namespace trireme::nn
