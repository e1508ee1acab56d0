#include "engine/nn/head.h"

#include <algorithm>

#include "engine/nn/norm.h"
#include "engine/nn/token_rows.h"

namespace trireme::nn {
namespace {

using kernels::ConstTensorView;
using kernels::Gemm;
using kernels::TensorView;
using model::Role;
using model::Saved;

// One block of rows while its logits exist.
struct Block {
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
  ConstTensorView x;  // final norm's output
  TensorView logits;
  TensorView row_max;
  TensorView row_sum;
  TensorView target_logit;
  TensorView losses;
  std::span<const std::int32_t> targets;
};

TensorView leading(TensorView row, std::int64_t count) { return kernels::column_range(row, 0, count); }

// x: the final norm's output, all rows.
std::vector<Block> blocks(const UnitContext& context, ConstTensorView x, TensorView logits) {
  std::vector<Block> all;
  for (std::int64_t row = 0; row < context.tokens(); row += logits.rows) {
    Block block;
    block.first_row = row;
    block.rows = std::min(logits.rows, context.tokens() - row);
    block.x = kernels::row_range(x, row, block.rows);
    block.logits = kernels::row_range(logits, 0, block.rows);
    all.push_back(block);
  }
  return all;
}

void project(const UnitContext& context, const WeightViews& weights, const Block& block) {
  context.kernels().gemm(Gemm{.a = block.x, .b = weights[Role::kHeadWeight], .transpose_b = true, .c = block.logits});
}

// Logits and losses of a block; the terms stay for the gradient. The three terms lie behind each other, so that the
// two sums are one all-reduce.
void block_loss(const UnitContext& context, const WeightViews& weights, const LossBuffers& loss, Block& block) {
  kernels::Kernels& kernels = context.kernels();
  block.row_max = leading(kernels::row_range(loss.row_terms, 0, 1), block.rows);
  const TensorView sums =
      kernels::make_view(loss.row_terms.data + loss.row_terms.columns * dtype_size(loss.row_terms.dtype),
                         loss.row_terms.dtype, 1, 2 * block.rows);
  block.row_sum = kernels::column_range(sums, 0, block.rows);
  block.target_logit = kernels::column_range(sums, block.rows, block.rows);
  block.losses = kernels::column_range(loss.losses, block.first_row, block.rows);
  block.targets =
      context.targets.subspan(static_cast<std::size_t>(block.first_row), static_cast<std::size_t>(block.rows));
  project(context, weights, block);
  kernels.row_maximum(block.logits, block.row_max);
  if (context.rank.tensor.size() > 1) {
    context.rank.tensor
        .all_reduce(context.rank.device.stream(), block.row_max.data, block.rows, block.row_max.dtype,
                    comm::Reduction::kMax)
        ->wait();
  }
  kernels.softmax_sum(block.logits, block.row_max, block.targets, context.vocabulary_begin, block.row_sum,
                      block.target_logit);
  sum_over_tensor_ranks(context, sums);
  kernels.cross_entropy_loss(block.row_max, block.row_sum, block.target_logit, block.targets, block.losses);
}

}  // namespace

std::int64_t counted_targets(std::span<const std::int32_t> targets) {
  return std::ranges::count_if(targets, [](std::int32_t target) { return target != kernels::kIgnoredTarget; });
}

void head_forward(const UnitContext& context, const WeightViews& weights, const SavedViews& saved) {
  norm_forward(context, kFinalNorm, weights, saved);
}

void head_recompute(const UnitContext& context, const WeightViews& weights, const SavedViews& saved,
                    model::Recompute recompute) {
  if (recompute == model::Recompute::kFull) {
    norm_forward(context, kFinalNorm, weights, saved);
  } else {
    norm_remake(context, kFinalNorm, weights, saved);
  }
}

void head_backward_input(const UnitContext& context, const WeightViews& weights, const SavedViews& saved,
                         const LossBuffers& loss, double loss_scale, TensorView d_input, GradientSink& sink) {
  kernels::Kernels& kernels = context.kernels();
  const Workspace::Scope scope(context.workspace);
  // The norm's output, where gathered, lies where its gradient will be: a block's gradient is written last.
  const TensorView d_norm = context.workspace.take(context.tokens(), context.config.hidden, context.dtype);
  const ConstTensorView x = all_rows_in(context, saved[Saved::kFinalNormOutput], d_norm);
  GradientSink::Target d_weight = sink.open(Role::kHeadWeight);
  for (Block& block : blocks(context, x, loss.logits)) {
    block_loss(context, weights, loss, block);
    kernels.cross_entropy_backward(block.logits, block.row_max, block.row_sum, block.targets, context.vocabulary_begin,
                                   loss_scale);
    kernels.gemm(Gemm{
        .a = block.logits, .transpose_a = true, .b = block.x, .c = d_weight.view, .accumulate = d_weight.accumulate});
    d_weight.accumulate = true;
    kernels.gemm(Gemm{.a = block.logits,
                      .b = weights[Role::kHeadWeight],
                      .c = kernels::row_range(d_norm, block.first_row, block.rows)});
  }
  sink.close(Role::kHeadWeight);
  norm_backward(context, kFinalNorm, weights, saved, sum_own_rows(context, d_norm), ConstTensorView{}, d_input, sink);
}

void head_loss(const UnitContext& context, const WeightViews& weights, const SavedViews& saved,
               const LossBuffers& loss) {
  const Workspace::Scope scope(context.workspace);
  const ConstTensorView x = all_rows(context, saved[Saved::kFinalNormOutput]);
  for (Block& block : blocks(context, x, loss.logits)) block_loss(context, weights, loss, block);
}

void head_logits(const UnitContext& context, const WeightViews& weights, const SavedViews& saved, TensorView logits,
                 const std::function<void(std::int64_t, ConstTensorView)>& take) {
  const Workspace::Scope scope(context.workspace);
  const ConstTensorView x = all_rows(context, saved[Saved::kFinalNormOutput]);
  for (const Block& block : blocks(context, x, logits)) {
    project(context, weights, block);
    take(block.first_row, block.logits);
  }
}

}  // namespace trireme::nn
