#include "engine/nn/embedding.h"

#include "engine/nn/dropout.h"
#include "engine/nn/token_rows.h"

namespace trireme::nn {

using model::Role;

namespace {

void add_positions(const UnitContext& context, kernels::ConstTensorView table, kernels::TensorView out) {
  kernels::Kernels& kernels = context.kernels();
  if (!context.sequence_parallel()) return kernels.position_forward(table, context.sequence, out);
  for (const SequencePart& part : own_sequence_parts(context)) {
    kernels.position_forward(kernels::row_range(table, part.position, part.rows), part.rows,
                             kernels::row_range(out, part.begin, part.rows));
  }
}

// With sequence parallelism the part of this rank's rows.
void position_gradient(const UnitContext& context, kernels::ConstTensorView d_out, const GradientSink::Target& target) {
  kernels::Kernels& kernels = context.kernels();
  if (!context.sequence_parallel()) {
    return kernels.position_backward(d_out, context.sequence, target.view, target.accumulate);
  }
  if (!target.accumulate) kernels.fill(target.view, 0.0);
  for (const SequencePart& part : own_sequence_parts(context)) {
    kernels.position_backward(kernels::row_range(d_out, part.begin, part.rows), part.rows,
                              kernels::row_range(target.view, part.position, part.rows), true);
  }
}

}  // namespace

void embedding_forward(const UnitContext& context, const WeightViews& weights, kernels::TensorView out) {
  kernels::Kernels& kernels = context.kernels();
  {
    const Workspace::Scope scope(context.workspace);
    const kernels::TensorView parts = rows_to_sum(context, out);
    kernels.embedding_forward(context.inputs, weights[Role::kTokenEmbedding], context.vocabulary_begin, parts);
    const kernels::TensorView sum = sum_own_rows(context, parts);
    if (context.sequence_parallel()) kernels.copy(sum, out);
  }
  if (context.config.position == model::PositionKind::kLearned) {
    add_positions(context, weights[Role::kPositionEmbedding], out);
  }
  const DropoutMask mask(context, "embedding", context.config.embedding_dropout, context.config.hidden);
  if (mask.active()) kernels.apply_dropout(out, out, mask.spec());
}

void embedding_backward_weight(const UnitContext& context, const SavedViews& saved, GradientSink& sink) {
  kernels::Kernels& kernels = context.kernels();
  const kernels::TensorView d_out = saved[model::Saved::kOutputGradient];
  const DropoutMask mask(context, "embedding", context.config.embedding_dropout, context.config.hidden);
  if (mask.active()) kernels.apply_dropout(d_out, d_out, mask.spec());

  const Workspace::Scope scope(context.workspace);
  const GradientSink::Target tokens = sink.open(Role::kTokenEmbedding);
  kernels.embedding_backward(context.inputs, all_rows(context, d_out), context.vocabulary_begin, tokens.view,
                             tokens.accumulate);
  sink.close(Role::kTokenEmbedding);
  if (context.config.position == model::PositionKind::kLearned) {
    const GradientSink::Target positions = sink.open(Role::kPositionEmbedding);
    position_gradient(context, d_out, positions);
    sink.close(Role::kPositionEmbedding);
  }
}

}  // namespace trireme::nn
