#include "engine/kernels/fake/fake_kernels.h"

#include <tuple>
#include <utility>
#include <vector>

#include "base/check.h"

namespace trireme::kernels::fake {

std::byte* real_address(std::byte* address) {
  TRIREME_CHECK(address == nullptr || is_device_address(address), "host memory was given to a device");
  if (address == nullptr) return nullptr;
  return reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(address) - kPoison);
}

const std::byte* real_address(const std::byte* address) { return real_address(const_cast<std::byte*>(address)); }

namespace {

// A Dropout with streams of its own, since the caller's may be gone when the worker reads them.
struct OwnedDropout {
  explicit OwnedDropout(const Dropout& spec) : dropout(spec), streams(spec.streams.begin(), spec.streams.end()) {}
  Dropout get() const {
    Dropout result = dropout;
    result.streams = streams;
    return result;
  }
  Dropout dropout;
  std::vector<std::uint64_t> streams;
};

template <class Work>
struct OwnedAttention {
  Work get() const {
    Work result = work;
    result.shape.dropout = dropout.get();
    return result;
  }
  Work work;
  OwnedDropout dropout;
};

// captured(x): what a call keeps of an argument. released(captured(x)): the argument that the worker passes on.
template <class Value>
Value captured(const Value& value) {
  return value;
}
TensorView captured(TensorView view) {
  view.data = real_address(view.data);
  return view;
}
ConstTensorView captured(ConstTensorView view) {
  view.data = real_address(view.data);
  return view;
}
std::span<const std::int32_t> captured(std::span<const std::int32_t> ids) {
  if (ids.empty()) return {};
  const auto* data = reinterpret_cast<const std::byte*>(ids.data());
  return {reinterpret_cast<const std::int32_t*>(real_address(data)), ids.size()};
}
OwnedDropout captured(const Dropout& dropout) { return OwnedDropout(dropout); }
Gemm captured(Gemm work) {
  work.a = captured(work.a);
  work.b = captured(work.b);
  work.c = captured(work.c);
  return work;
}
OwnedAttention<AttentionForward> captured(AttentionForward work) {
  for (ConstTensorView* view : {&work.q, &work.k, &work.v}) *view = captured(*view);
  for (TensorView* view : {&work.out, &work.log_sum_exp, &work.scratch}) *view = captured(*view);
  return {work, OwnedDropout(work.shape.dropout)};
}
OwnedAttention<AttentionBackward> captured(AttentionBackward work) {
  for (ConstTensorView* view : {&work.q, &work.k, &work.v, &work.out, &work.log_sum_exp, &work.d_out}) {
    *view = captured(*view);
  }
  for (TensorView* view : {&work.d_q, &work.d_k, &work.d_v, &work.scratch}) *view = captured(*view);
  return {work, OwnedDropout(work.shape.dropout)};
}

template <class Value>
const Value& released(const Value& value) {
  return value;
}
Dropout released(const OwnedDropout& dropout) { return dropout.get(); }
template <class Work>
Work released(const OwnedAttention<Work>& attention) {
  return attention.get();
}

}  // namespace

template <class Method, class... Arguments>
void FakeKernels::queue(Method method, const Arguments&... arguments) {
  queue_.push([&kernels = kernels_, method, kept = std::tuple(captured(arguments)...)] {
    std::apply([&](const auto&... values) { (kernels.*method)(released(values)...); }, kept);
  });
}

void FakeKernels::gemm(const Gemm& gemm) { queue(&Kernels::gemm, gemm); }
void FakeKernels::add_bias(TensorView x, ConstTensorView bias) { queue(&Kernels::add_bias, x, bias); }
void FakeKernels::column_sum(ConstTensorView x, TensorView out, bool accumulate) {
  queue(&Kernels::column_sum, x, out, accumulate);
}
void FakeKernels::residual_add(TensorView out, ConstTensorView residual, ConstTensorView x, ConstTensorView bias,
                               const Dropout& dropout) {
  queue(&Kernels::residual_add, out, residual, x, bias, dropout);
}
void FakeKernels::apply_dropout(TensorView out, ConstTensorView x, const Dropout& dropout) {
  queue(&Kernels::apply_dropout, out, x, dropout);
}
void FakeKernels::embedding_forward(std::span<const std::int32_t> ids, ConstTensorView table, std::int64_t row_begin,
                                    TensorView out) {
  queue(&Kernels::embedding_forward, ids, table, row_begin, out);
}
void FakeKernels::embedding_backward(std::span<const std::int32_t> ids, ConstTensorView d_out, std::int64_t row_begin,
                                     TensorView d_table, bool accumulate) {
  queue(&Kernels::embedding_backward, ids, d_out, row_begin, d_table, accumulate);
}
void FakeKernels::position_forward(ConstTensorView table, std::int64_t sequence, TensorView out) {
  queue(&Kernels::position_forward, table, sequence, out);
}
void FakeKernels::position_backward(ConstTensorView d_out, std::int64_t sequence, TensorView d_table, bool accumulate) {
  queue(&Kernels::position_backward, d_out, sequence, d_table, accumulate);
}
void FakeKernels::norm_forward(NormType type, ConstTensorView x, ConstTensorView weight, ConstTensorView bias,
                               double epsilon, TensorView y, TensorView stats) {
  queue(&Kernels::norm_forward, type, x, weight, bias, epsilon, y, stats);
}
void FakeKernels::norm_apply(NormType type, ConstTensorView x, ConstTensorView stats, ConstTensorView weight,
                             ConstTensorView bias, TensorView y) {
  queue(&Kernels::norm_apply, type, x, stats, weight, bias, y);
}
void FakeKernels::norm_backward_input(NormType type, ConstTensorView d_y, ConstTensorView x, ConstTensorView stats,
                                      ConstTensorView weight, ConstTensorView addend, TensorView d_x) {
  queue(&Kernels::norm_backward_input, type, d_y, x, stats, weight, addend, d_x);
}
void FakeKernels::norm_backward_weight(NormType type, ConstTensorView d_y, ConstTensorView x, ConstTensorView stats,
                                       TensorView d_weight, TensorView d_bias, bool accumulate) {
  queue(&Kernels::norm_backward_weight, type, d_y, x, stats, d_weight, d_bias, accumulate);
}
void FakeKernels::row_square_sums(ConstTensorView x, TensorView sums) { queue(&Kernels::row_square_sums, x, sums); }
void FakeKernels::stats_of_square_sums(ConstTensorView sums, std::int64_t columns_total, double epsilon,
                                       TensorView stats) {
  queue(&Kernels::stats_of_square_sums, sums, columns_total, epsilon, stats);
}
void FakeKernels::norm_row_dots(ConstTensorView d_y, ConstTensorView x, ConstTensorView stats, ConstTensorView weight,
                                TensorView dots) {
  queue(&Kernels::norm_row_dots, d_y, x, stats, weight, dots);
}
void FakeKernels::norm_backward_input_of_dots(ConstTensorView d_y, ConstTensorView x, ConstTensorView stats,
                                              ConstTensorView weight, ConstTensorView dots, std::int64_t columns_total,
                                              ConstTensorView addend, TensorView d_x) {
  queue(&Kernels::norm_backward_input_of_dots, d_y, x, stats, weight, dots, columns_total, addend, d_x);
}
void FakeKernels::rotary(TensorView x, std::int64_t heads, std::int64_t head_dim, ConstTensorView table,
                         std::int64_t sequence, bool inverse) {
  queue(&Kernels::rotary, x, heads, head_dim, table, sequence, inverse);
}
void FakeKernels::attention_forward(const AttentionForward& work) { queue(&Kernels::attention_forward, work); }
void FakeKernels::attention_backward(const AttentionBackward& work) { queue(&Kernels::attention_backward, work); }
void FakeKernels::activation_forward(ActivationType type, ConstTensorView gate, ConstTensorView up, TensorView out) {
  queue(&Kernels::activation_forward, type, gate, up, out);
}
void FakeKernels::activation_backward(ActivationType type, ConstTensorView d_out, ConstTensorView gate,
                                      ConstTensorView up, TensorView d_gate, TensorView d_up) {
  queue(&Kernels::activation_backward, type, d_out, gate, up, d_gate, d_up);
}
void FakeKernels::row_maximum(ConstTensorView logits, TensorView row_max) {
  queue(&Kernels::row_maximum, logits, row_max);
}
void FakeKernels::softmax_sum(ConstTensorView logits, ConstTensorView row_max, std::span<const std::int32_t> targets,
                              std::int64_t vocabulary_begin, TensorView row_sum, TensorView target_logit) {
  queue(&Kernels::softmax_sum, logits, row_max, targets, vocabulary_begin, row_sum, target_logit);
}
void FakeKernels::cross_entropy_loss(ConstTensorView row_max, ConstTensorView row_sum, ConstTensorView target_logit,
                                     std::span<const std::int32_t> targets, TensorView loss) {
  queue(&Kernels::cross_entropy_loss, row_max, row_sum, target_logit, targets, loss);
}
void FakeKernels::cross_entropy_backward(TensorView logits, ConstTensorView row_max, ConstTensorView row_sum,
                                         std::span<const std::int32_t> targets, std::int64_t vocabulary_begin,
                                         double scale) {
  queue(&Kernels::cross_entropy_backward, logits, row_max, row_sum, targets, vocabulary_begin, scale);
}
void FakeKernels::adamw(const AdamW& step, TensorView weights, ConstTensorView gradients, TensorView first_moment,
                        TensorView second_moment, TensorView rounded) {
  queue(&Kernels::adamw, step, weights, gradients, first_moment, second_moment, rounded);
}
void FakeKernels::square_blocks(ConstTensorView x, TensorView blocks) { queue(&Kernels::square_blocks, x, blocks); }
void FakeKernels::fill(TensorView x, double value) { queue(&Kernels::fill, x, value); }
void FakeKernels::copy(ConstTensorView from, TensorView to) { queue(&Kernels::copy, from, to); }
void FakeKernels::add(TensorView y, ConstTensorView x) { queue(&Kernels::add, y, x); }
void FakeKernels::scale(TensorView x, double factor) { queue(&Kernels::scale, x, factor); }

}  // namespace trireme::kernels::fake
