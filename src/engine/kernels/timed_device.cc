#include "engine/kernels/timed_device.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

namespace trireme::kernels {
namespace {

template <class Operand>
double bytes_of(const Operand& operand) {
  if constexpr (std::is_same_v<Operand, TensorView> || std::is_same_v<Operand, ConstTensorView>) {
    return operand.empty() ? 0.0 : static_cast<double>(operand.elements() * dtype_size(operand.dtype));
  } else {
    return 0.0;
  }
}

// Multiplications and additions of one product of queries and keys, or of strips and values, over what a query sees.
double product_flops(const AttentionShape& shape) {
  const std::int64_t s = shape.sequence, window = shape.window == 0 ? s : std::min(s, shape.window);
  const auto twice_the_keys = static_cast<double>(window) * static_cast<double>(2 * s - window + 1);  // of all queries
  return static_cast<double>(shape.sequences * shape.heads * shape.head_dim) * twice_the_keys;
}

class TimedKernels : public Kernels {
 public:
  TimedKernels(Kernels& kernels, Env& env, KernelRecord& record) : kernels_(kernels), env_(env), record_(record) {}

  int threads() const override { return kernels_.threads(); }
  void use_scratch(TensorView scratch) override { kernels_.use_scratch(scratch); }

  void gemm(const Gemm& work) override {
    const std::int64_t inner = work.transpose_a ? work.a.rows : work.a.columns;
    const std::string name = fmt::format("gemm {}{} {} x {} x {}", work.transpose_a ? "T" : "N",
                                         work.transpose_b ? "T" : "N", work.c.rows, work.c.columns, inner);
    timed(name, 2.0 * static_cast<double>(work.c.elements()) * static_cast<double>(inner),
          bytes_of(work.a) + bytes_of(work.b) + bytes_of(work.c), [&] { kernels_.gemm(work); });
  }
  // Two products, and five: scores again, and the gradients of probabilities, values, queries and keys.
  void attention_forward(const AttentionForward& work) override {
    timed("attention_forward", 2 * product_flops(work.shape),
          bytes_of(work.q) + bytes_of(work.k) + bytes_of(work.v) + bytes_of(work.out),
          [&] { kernels_.attention_forward(work); });
  }
  void attention_backward(const AttentionBackward& work) override {
    timed("attention_backward", 5 * product_flops(work.shape),
          2 * (bytes_of(work.q) + bytes_of(work.k) + bytes_of(work.v) + bytes_of(work.out)),
          [&] { kernels_.attention_backward(work); });
  }

  void add_bias(TensorView x, ConstTensorView bias) override { call("add_bias", &Kernels::add_bias, x, bias); }
  void column_sum(ConstTensorView x, TensorView out, bool accumulate) override {
    call("column_sum", &Kernels::column_sum, x, out, accumulate);
  }
  void residual_add(TensorView out, ConstTensorView residual, ConstTensorView x, ConstTensorView bias,
                    const Dropout& dropout) override {
    call("residual_add", &Kernels::residual_add, out, residual, x, bias, dropout);
  }
  void apply_dropout(TensorView out, ConstTensorView x, const Dropout& dropout) override {
    call("apply_dropout", &Kernels::apply_dropout, out, x, dropout);
  }
  void embedding_forward(std::span<const std::int32_t> ids, ConstTensorView table, std::int64_t row_begin,
                         TensorView out) override {
    call("embedding_forward", &Kernels::embedding_forward, ids, table, row_begin, out);
  }
  void embedding_backward(std::span<const std::int32_t> ids, ConstTensorView d_out, std::int64_t row_begin,
                          TensorView d_table, bool accumulate) override {
    call("embedding_backward", &Kernels::embedding_backward, ids, d_out, row_begin, d_table, accumulate);
  }
  void position_forward(ConstTensorView table, std::int64_t sequence, TensorView out) override {
    call("position_forward", &Kernels::position_forward, table, sequence, out);
  }
  void position_backward(ConstTensorView d_out, std::int64_t sequence, TensorView d_table, bool accumulate) override {
    call("position_backward", &Kernels::position_backward, d_out, sequence, d_table, accumulate);
  }
  void norm_forward(NormType type, ConstTensorView x, ConstTensorView weight, ConstTensorView bias, double epsilon,
                    TensorView y, TensorView stats) override {
    call("norm_forward", &Kernels::norm_forward, type, x, weight, bias, epsilon, y, stats);
  }
  void norm_apply(NormType type, ConstTensorView x, ConstTensorView stats, ConstTensorView weight, ConstTensorView bias,
                  TensorView y) override {
    call("norm_apply", &Kernels::norm_apply, type, x, stats, weight, bias, y);
  }
  void norm_backward_input(NormType type, ConstTensorView d_y, ConstTensorView x, ConstTensorView stats,
                           ConstTensorView weight, ConstTensorView addend, TensorView d_x) override {
    call("norm_backward_input", &Kernels::norm_backward_input, type, d_y, x, stats, weight, addend, d_x);
  }
  void norm_backward_weight(NormType type, ConstTensorView d_y, ConstTensorView x, ConstTensorView stats,
                            TensorView d_weight, TensorView d_bias, bool accumulate) override {
    call("norm_backward_weight", &Kernels::norm_backward_weight, type, d_y, x, stats, d_weight, d_bias, accumulate);
  }
  void row_square_sums(ConstTensorView x, TensorView sums) override {
    call("row_square_sums", &Kernels::row_square_sums, x, sums);
  }
  void stats_of_square_sums(ConstTensorView sums, std::int64_t columns_total, double epsilon,
                            TensorView stats) override {
    call("stats_of_square_sums", &Kernels::stats_of_square_sums, sums, columns_total, epsilon, stats);
  }
  void norm_row_dots(ConstTensorView d_y, ConstTensorView x, ConstTensorView stats, ConstTensorView weight,
                     TensorView dots) override {
    call("norm_row_dots", &Kernels::norm_row_dots, d_y, x, stats, weight, dots);
  }
  void norm_backward_input_of_dots(ConstTensorView d_y, ConstTensorView x, ConstTensorView stats,
                                   ConstTensorView weight, ConstTensorView dots, std::int64_t columns_total,
                                   ConstTensorView addend, TensorView d_x) override {
    call("norm_backward_input_of_dots", &Kernels::norm_backward_input_of_dots, d_y, x, stats, weight, dots,
         columns_total, addend, d_x);
  }
  void rotary(TensorView x, std::int64_t heads, std::int64_t head_dim, ConstTensorView table, std::int64_t sequence,
              bool inverse) override {
    call("rotary", &Kernels::rotary, x, heads, head_dim, table, sequence, inverse);
  }
  void activation_forward(ActivationType type, ConstTensorView gate, ConstTensorView up, TensorView out) override {
    call("activation_forward", &Kernels::activation_forward, type, gate, up, out);
  }
  void activation_backward(ActivationType type, ConstTensorView d_out, ConstTensorView gate, ConstTensorView up,
                           TensorView d_gate, TensorView d_up) override {
    call("activation_backward", &Kernels::activation_backward, type, d_out, gate, up, d_gate, d_up);
  }
  void row_maximum(ConstTensorView logits, TensorView row_max) override {
    call("row_maximum", &Kernels::row_maximum, logits, row_max);
  }
  void softmax_sum(ConstTensorView logits, ConstTensorView row_max, std::span<const std::int32_t> targets,
                   std::int64_t vocabulary_begin, TensorView row_sum, TensorView target_logit) override {
    call("softmax_sum", &Kernels::softmax_sum, logits, row_max, targets, vocabulary_begin, row_sum, target_logit);
  }
  void cross_entropy_loss(ConstTensorView row_max, ConstTensorView row_sum, ConstTensorView target_logit,
                          std::span<const std::int32_t> targets, TensorView loss) override {
    call("cross_entropy_loss", &Kernels::cross_entropy_loss, row_max, row_sum, target_logit, targets, loss);
  }
  void cross_entropy_backward(TensorView logits, ConstTensorView row_max, ConstTensorView row_sum,
                              std::span<const std::int32_t> targets, std::int64_t vocabulary_begin,
                              double scale) override {
    call("cross_entropy_backward", &Kernels::cross_entropy_backward, logits, row_max, row_sum, targets,
         vocabulary_begin, scale);
  }
  void adamw(const AdamW& step, TensorView weights, ConstTensorView gradients, TensorView first_moment,
             TensorView second_moment, TensorView rounded) override {
    call("adamw", &Kernels::adamw, step, weights, gradients, first_moment, second_moment, rounded);
  }
  void square_blocks(ConstTensorView x, TensorView blocks) override {
    call("square_blocks", &Kernels::square_blocks, x, blocks);
  }
  void fill(TensorView x, double value) override { call("fill", &Kernels::fill, x, value); }
  void copy(ConstTensorView from, TensorView to) override { call("copy", &Kernels::copy, from, to); }
  void add(TensorView y, ConstTensorView x) override { call("add", &Kernels::add, y, x); }
  void scale(TensorView x, double factor) override { call("scale", &Kernels::scale, x, factor); }

 private:
  template <class Work>
  void timed(const std::string& name, double flops, double bytes, const Work& work) {
    const double begun = env_.now().count;
    work();
    record_.add(name, env_.now().count - begun, flops, bytes);
  }
  template <class Method, class... Arguments>
  void call(const char* name, Method method, const Arguments&... arguments) {
    timed(name, 0, (bytes_of(arguments) + ...), [&] { (kernels_.*method)(arguments...); });
  }

  Kernels& kernels_;
  Env& env_;
  KernelRecord& record_;
};

class TimedDevice : public Device {
 public:
  TimedDevice(std::unique_ptr<Device> device, Env& env, KernelRecord& record)
      : device_(std::move(device)), kernels_(device_->kernels(), env, record) {}

  std::string_view name() const override { return device_->name(); }
  std::byte* allocate(Bytes bytes) override { return device_->allocate(bytes); }
  void deallocate(std::byte* data, Bytes bytes) override { device_->deallocate(data, bytes); }
  void copy_to_device(std::byte* destination, const void* source, Bytes bytes) override {
    device_->copy_to_device(destination, source, bytes);
  }
  void copy_to_host(void* destination, const std::byte* source, Bytes bytes) override {
    device_->copy_to_host(destination, source, bytes);
  }
  void synchronize() override { device_->synchronize(); }
  Stream stream() override { return device_->stream(); }
  Kernels& kernels() override { return kernels_; }

 private:
  std::unique_ptr<Device> device_;
  TimedKernels kernels_;
};

}  // namespace

void KernelRecord::add(const std::string& kernel, double seconds, double flops, double bytes) {
  telemetry::KernelTimes& times = times_[kernel];
  times.kernel = kernel;
  ++times.calls;
  times.seconds += seconds;
  times.flops += flops;
  times.bytes += bytes;
}

std::vector<telemetry::KernelTimes> KernelRecord::take() {
  std::vector<telemetry::KernelTimes> all;
  for (auto& [name, times] : std::exchange(times_, {})) all.push_back(std::move(times));
  std::ranges::stable_sort(all, std::greater<>{}, &telemetry::KernelTimes::seconds);
  return all;
}

std::unique_ptr<Device> make_timed_device(std::unique_ptr<Device> device, Env& env, KernelRecord& record) {
  return std::make_unique<TimedDevice>(std::move(device), env, record);
}

}  // namespace trireme::kernels
