// What runs forward (model/flow_steps.h).

#include <cmath>

#include "engine/nn/pass_runner.h"
#include "engine/nn/token_rows.h"

namespace trireme::nn {

using kernels::Gemm;
using kernels::TensorView;
using model::FlowOp;
using plan::PlacedStep;
using plan::PlacedValue;

void PassRunner::lookup(const PlacedStep& s) {
  kernels_.embedding_forward(context_.inputs, weight(s), context_.vocabulary_begin, write(s));
}

void PassRunner::add_positions(const PlacedStep& s) {
  const TensorView out = write(s);
  move(read(s, 0), out);
  if (!context_.sequence_parallel()) return kernels_.position_forward(weight(s), context_.sequence, out);
  for (const SequencePart& part : own_sequence_parts(context_)) {
    kernels_.position_forward(kernels::row_range(weight(s), part.position, part.rows), part.rows,
                              kernels::row_range(out, part.begin, part.rows));
  }
}

void PassRunner::linear(const PlacedStep& s) {
  kernels_.gemm(Gemm{.a = read(s, 0), .b = weight(s), .transpose_b = !input_first(s), .c = write(s)});
}

void PassRunner::add_bias(const PlacedStep& s) { kernels_.add_bias(write(s), weight(s)); }

void PassRunner::norm(const PlacedStep& s) {
  kernels_.norm_forward(norm_type(operation(s).norm), read(s, 0), weight(s, 0), weight(s, 1),
                        context_.config.norm_epsilon, write(s, 0), write(s, 1));
}

void PassRunner::norm_again(const PlacedStep& s) {
  kernels_.norm_apply(norm_type(operation(s).norm), read(s, 0), read(s, 1), weight(s, 0), weight(s, 1), write(s));
}

TensorView PassRunner::by_head(const TensorView& x) const {
  TRIREME_CHECK(x.contiguous());
  const std::int64_t d = context_.config.head_dim;
  return kernels::make_view(x.data, x.dtype, x.rows * x.columns / d, d);
}

TensorView PassRunner::row_of(const TensorView& sums) {
  TRIREME_CHECK(sums.contiguous() && sums.columns == 1);
  return kernels::make_view(sums.data, sums.dtype, 1, sums.rows);
}

void PassRunner::head_norm(const PlacedStep& s) {
  kernels_.norm_forward(kernels::NormType::kRmsNorm, by_head(read(s, 0)), weight(s), {}, context_.config.norm_epsilon,
                        by_head(write(s)), scratch(s));
}

void PassRunner::square_sums(const PlacedStep& s) { kernels_.row_square_sums(read(s, 0), row_of(write(s))); }

void PassRunner::norm_of_sums(const PlacedStep& s) {
  const TensorView x = read(s, 0), statistics = write(s, 1);
  kernels_.stats_of_square_sums(row_of(read(s, 1)), columns_of_all(x), context_.config.norm_epsilon, statistics);
  kernels_.norm_apply(kernels::NormType::kRmsNorm, x, statistics, weight(s), {}, write(s, 0));
}

void PassRunner::scale(const PlacedStep& s) {
  move(read(s, 0), write(s));
  kernels_.scale(write(s), operation(s).factor);
}

void PassRunner::turn(const PlacedStep& s, bool inverse) {
  const std::vector<TensorView> all = parts(s.writes);
  const std::int64_t d = context_.config.head_dim;
  for (std::size_t i = 0; i < 2; ++i)
    kernels_.rotary(all[i], all[i].columns / d, d, context_.rotary, context_.sequence, inverse);
}

void PassRunner::rotary(const PlacedStep& s) { turn(s, false); }

kernels::AttentionShape PassRunner::attention_shape(const PlacedStep& s, const DropoutMask& mask) const {
  return {.sequences = context_.sequences,
          .sequence = context_.sequence,
          .heads = context_.widths.heads,
          .kv_heads = context_.widths.kv_heads,
          .head_dim = context_.config.head_dim,
          .scale = 1.0 / std::sqrt(static_cast<double>(context_.config.head_dim)),
          .window = operation(s).window,
          .head_begin = context_.head_begin,
          .dropout = mask.spec()};
}

TensorView PassRunner::log_sum_exp(const PlacedValue& value) const {
  const TensorView kept = view(value);
  return kernels::make_view(kept.data, kept.dtype, context_.sequences * context_.widths.heads, context_.sequence);
}

void PassRunner::attention(const PlacedStep& s) {
  const std::vector<TensorView> qkv = parts(s.reads);
  const DropoutMask dropout_mask = mask(s);
  kernels_.attention_forward({.shape = attention_shape(s, dropout_mask),
                              .q = qkv[0],
                              .k = qkv[1],
                              .v = qkv[2],
                              .out = write(s, 0),
                              .log_sum_exp = log_sum_exp(s.writes[1]),
                              .scratch = scratch(s)});
}

PassRunner::GateAndUp PassRunner::gate_and_up(std::span<const PlacedValue> values) const {
  const std::vector<TensorView> all = parts(values);
  if (all.size() == 1) return {.gate = {}, .up = all[0]};
  return values.size() == 1 ? GateAndUp{.gate = all[0], .up = all[1]} : GateAndUp{.gate = all[1], .up = all[0]};
}

void PassRunner::activation(const PlacedStep& s) {
  const GateAndUp in = gate_and_up(s.reads);
  kernels_.activation_forward(activation_type(context_.config.activation), in.gate, in.up, write(s));
}

void PassRunner::dropout(const PlacedStep& s) {
  const DropoutMask dropout_mask = mask(s);
  if (!dropout_mask.active()) return move(read(s, 0), write(s));
  kernels_.apply_dropout(write(s), read(s, 0), dropout_mask.spec());
}

void PassRunner::add(const PlacedStep& s) {
  kernels_.residual_add(write(s), read(s, 0), read(s, 1), weight(s), mask(s).spec());
}

void PassRunner::row_maximum(const PlacedStep& s) { kernels_.row_maximum(read(s, 0), write(s)); }

void PassRunner::softmax(const PlacedStep& s) {
  const auto targets =
      context_.targets.subspan(static_cast<std::size_t>(block_.first_row), static_cast<std::size_t>(block_.rows));
  const auto row_sum = [&](const TensorView& sums) { return kernels::column_range(sums, 0, block_.rows); };
  const auto target_logit = [&](const TensorView& sums) {
    return kernels::column_range(sums, block_.rows, block_.rows);
  };
  if (s.step.op == FlowOp::kSoftmaxSum) {
    const TensorView sums = write(s);
    return kernels_.softmax_sum(read(s, 0), read(s, 1), targets, context_.vocabulary_begin, row_sum(sums),
                                target_logit(sums));
  }
  if (s.step.op == FlowOp::kCrossEntropy) {
    const TensorView sums = read(s, 1);
    return kernels_.cross_entropy_loss(read(s, 0), row_sum(sums), target_logit(sums), targets, write(s));
  }
  kernels_.cross_entropy_backward(write(s), read(s, 1), row_sum(read(s, 2)), targets, context_.vocabulary_begin,
                                  buffers_.loss_scale);
}

}  // namespace trireme::nn
