// What runs backward, and exchanges (model/flow_steps.h).

#include "engine/nn/pass_runner.h"
#include "engine/nn/token_rows.h"

namespace trireme::nn {

using kernels::Gemm;
using kernels::TensorView;
using model::FlowOp;
using model::Role;
using plan::PlacedStep;

void PassRunner::input_gradient(const PlacedStep& s) {
  kernels_.gemm(Gemm{
      .a = read(s, 0), .b = weight(s), .transpose_b = input_first(s), .c = write(s), .accumulate = s.step.accumulate});
}

void PassRunner::weight_gradient(const PlacedStep& s) {
  const Role role = s.step.parameters.front();
  if (block_.first) block_target_ = sink_->open(role);
  const bool first = input_first(s);
  kernels_.gemm(Gemm{.a = read(s, first ? 0 : 1),
                     .transpose_a = true,
                     .b = read(s, first ? 1 : 0),
                     .c = block_target_.view,
                     .accumulate = block_target_.accumulate});
  block_target_.accumulate = true;
  if (block_.last) sink_->close(role);
}

void PassRunner::bias_gradient(const PlacedStep& s) {
  const Role role = s.step.parameters.front();
  const GradientSink::Target target = sink_->open(role);
  kernels_.column_sum(read(s, 0), target.view, target.accumulate);
  sink_->close(role);
}

void PassRunner::norm_gradient(const PlacedStep& s) {
  const kernels::NormType type = norm_type(operation(s).norm);
  const Role weight_role = s.step.parameters.front();
  const bool has_bias = s.step.parameters.size() > 1;
  const GradientSink::Target d_weight = sink_->open(weight_role);
  const GradientSink::Target d_bias = has_bias ? sink_->open(s.step.parameters[1]) : GradientSink::Target{};
  TRIREME_CHECK(!has_bias || d_bias.accumulate == d_weight.accumulate);
  kernels_.norm_backward_weight(type, read(s, 0), read(s, 1), read(s, 2), d_weight.view, d_bias.view,
                                d_weight.accumulate);
  sink_->close(weight_role);
  if (has_bias) sink_->close(s.step.parameters[1]);
  kernels_.norm_backward_input(type, read(s, 0), read(s, 1), read(s, 2), weight(s),
                               s.reads.size() > 3 ? read(s, 3) : TensorView{}, write(s));
}

void PassRunner::head_norm_gradient(const PlacedStep& s) {
  const TensorView d_y = by_head(read(s, 0)), x = by_head(read(s, 1)), d_x = by_head(write(s)), statistics = scratch(s);
  TRIREME_CHECK(d_x.data != d_y.data);
  kernels_.norm_forward(kernels::NormType::kRmsNorm, x, weight(s), {}, context_.config.norm_epsilon, d_x, statistics);
  const Role role = s.step.parameters.front();
  const GradientSink::Target d_weight = sink_->open(role);
  kernels_.norm_backward_weight(kernels::NormType::kRmsNorm, d_y, x, statistics, d_weight.view, {},
                                d_weight.accumulate);
  sink_->close(role);
  kernels_.norm_backward_input(kernels::NormType::kRmsNorm, d_y, x, statistics, weight(s), {}, d_x);
}

void PassRunner::norm_dots(const PlacedStep& s) {
  kernels_.norm_row_dots(read(s, 0), read(s, 1), read(s, 2), weight(s), row_of(write(s)));
}

void PassRunner::whole_norm_gradient(const PlacedStep& s) {
  const TensorView d_y = read(s, 0), x = read(s, 1), statistics = read(s, 2);
  const Role role = s.step.parameters.front();
  const GradientSink::Target d_weight = sink_->open(role);
  kernels_.norm_backward_weight(kernels::NormType::kRmsNorm, d_y, x, statistics, d_weight.view, {},
                                d_weight.accumulate);
  sink_->close(role);
  kernels_.norm_backward_input_of_dots(d_y, x, statistics, weight(s), row_of(read(s, 3)), columns_of_all(x), {},
                                       write(s));
}

void PassRunner::rotary_gradient(const PlacedStep& s) { turn(s, true); }

void PassRunner::attention_gradient(const PlacedStep& s) {
  const std::size_t count = s.writes.size();  // one fused value, or three
  const std::vector<TensorView> qkv = parts(std::span(s.reads).subspan(1, count)), d_qkv = parts(s.writes);
  const DropoutMask dropout_mask = mask(s);
  kernels_.attention_backward({.shape = attention_shape(s, dropout_mask),
                               .q = qkv[0],
                               .k = qkv[1],
                               .v = qkv[2],
                               .out = read(s, 1 + count),
                               .log_sum_exp = log_sum_exp(s.reads[2 + count]),
                               .d_out = read(s, 0),
                               .d_q = d_qkv[0],
                               .d_k = d_qkv[1],
                               .d_v = d_qkv[2],
                               .scratch = scratch(s)});
}

void PassRunner::activation_gradient(const PlacedStep& s) {
  const GateAndUp in = gate_and_up(std::span(s.reads).subspan(1)), d = gate_and_up(s.writes);
  kernels_.activation_backward(activation_type(context_.config.activation), read(s, 0), in.gate, in.up, d.gate, d.up);
}

void PassRunner::sum_gradients(const PlacedStep& s) {
  const TensorView a = read(s, 0), b = read(s, 1), out = write(s);
  if (out.data == b.data) return kernels_.add(out, a);
  move(a, out);
  kernels_.add(out, b);
}

void PassRunner::lookup_gradient(const PlacedStep& s) {
  const Role role = s.step.parameters.front();
  const GradientSink::Target target = sink_->open(role);
  kernels_.embedding_backward(context_.inputs, read(s, 0), context_.vocabulary_begin, target.view, target.accumulate);
  sink_->close(role);
}

void PassRunner::positions_gradient(const PlacedStep& s) {
  const Role role = s.step.parameters.front();
  const GradientSink::Target target = sink_->open(role);
  const TensorView d_out = read(s, 0);
  if (!context_.sequence_parallel()) {
    kernels_.position_backward(d_out, context_.sequence, target.view, target.accumulate);
  } else {
    if (!target.accumulate) kernels_.fill(target.view, 0.0);
    for (const SequencePart& part : own_sequence_parts(context_)) {
      kernels_.position_backward(kernels::row_range(d_out, part.begin, part.rows), part.rows,
                                 kernels::row_range(target.view, part.position, part.rows), true);
    }
  }
  sink_->close(role);
}

void PassRunner::exchange(const PlacedStep& s) {
  comm::Communicator& tensor = context_.rank.tensor;
  if (tensor.size() == 1 && !context_.sequence_parallel()) return;
  const auto stream = context_.rank.device.stream();
  const auto own_rows = [&](TensorView all) {
    return kernels::row_range(all, context_.first_row(), context_.widths.sequence_tokens);
  };
  const TensorView from = view(s.reads.front()), to = view(s.writes.front());
  switch (s.step.op) {
    case FlowOp::kAllReduce:
    case FlowOp::kAllReduceMaximum: {
      const comm::Reduction reduction = s.step.op == FlowOp::kAllReduce ? comm::Reduction::kSum : comm::Reduction::kMax;
      tensor.all_reduce(stream, from.data, from.elements(), from.dtype, reduction)->wait();
      return;
    }
    case FlowOp::kReduceScatter:
      TRIREME_CHECK(from.contiguous() && from.rows == context_.tokens());
      tensor.reduce_scatter(stream, from.data, from.elements(), from.dtype)->wait();
      return move(own_rows(from), to);
    default:  // kAllGather
      TRIREME_CHECK(to.contiguous() && to.rows == context_.tokens());
      kernels_.copy(from, own_rows(to));
      tensor.all_gather(stream, to.data, to.elements(), to.dtype)->wait();
  }
}

}  // namespace trireme::nn
