#include "engine/nn/embedding.h"

#include "engine/nn/dropout.h"

namespace trireme::nn {

using model::Role;

void embedding_forward(const UnitContext& context, const WeightViews& weights, kernels::TensorView out) {
  kernels::Kernels& kernels = context.kernels();
  kernels.embedding_forward(context.inputs, weights[Role::kTokenEmbedding], context.vocabulary_begin, out);
  sum_over_tensor_ranks(context, out);
  if (context.config.position == model::PositionKind::kLearned) {
    kernels.position_forward(weights[Role::kPositionEmbedding], context.sequence, out);
  }
  const DropoutMask mask(context, "embedding", context.config.embedding_dropout, context.config.hidden);
  if (mask.active()) kernels.apply_dropout(out, out, mask.spec());
}

void embedding_backward_weight(const UnitContext& context, const SavedViews& saved, GradientSink& sink) {
  kernels::Kernels& kernels = context.kernels();
  const kernels::TensorView d_out = saved[model::Saved::kOutputGradient];
  const DropoutMask mask(context, "embedding", context.config.embedding_dropout, context.config.hidden);
  if (mask.active()) kernels.apply_dropout(d_out, d_out, mask.spec());

  const GradientSink::Target tokens = sink.open(Role::kTokenEmbedding);
  kernels.embedding_backward(context.inputs, d_out, context.vocabulary_begin, tokens.view, tokens.accumulate);
  sink.close(Role::kTokenEmbedding);
  if (context.config.position == model::PositionKind::kLearned) {
    const GradientSink::Target positions = sink.open(Role::kPositionEmbedding);
    kernels.position_backward(d_out, context.sequence, positions.view, positions.accumulate);
    sink.close(Role::kPositionEmbedding);
  }
}

}  // namespace trireme::nn
