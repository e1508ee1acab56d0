#pragma once

// The CPU backend: oneDNN's matrix products and SIMD loops by runtime dispatch, in float32, on a team of threads.

#include "engine/kernels/cpu/team.h"
#include "engine/kernels/kernels.h"

namespace trireme::kernels {

class CpuKernels : public Kernels {
 public:
  explicit CpuKernels(int threads) : team_(threads) {}
  int threads() const override { return team_.size(); }

  // gemm.cc
  void use_scratch(TensorView scratch) override;
  void gemm(const Gemm& gemm) override;

  // elementwise.cc
  void add_bias(TensorView x, ConstTensorView bias) override;
  void column_sum(ConstTensorView x, TensorView out, bool accumulate) override;
  void residual_add(TensorView out, ConstTensorView residual, ConstTensorView x, ConstTensorView bias,
                    const Dropout& dropout) override;
  void apply_dropout(TensorView out, ConstTensorView x, const Dropout& dropout) override;
  void activation_forward(ActivationType type, ConstTensorView gate, ConstTensorView up, TensorView out) override;
  void activation_backward(ActivationType type, ConstTensorView d_out, ConstTensorView gate, ConstTensorView up,
                           TensorView d_gate, TensorView d_up) override;
  void fill(TensorView x, double value) override;
  void copy(ConstTensorView from, TensorView to) override;
  void add(TensorView y, ConstTensorView x) override;
  void scale(TensorView x, double factor) override;

  // embedding.cc
  void embedding_forward(std::span<const std::int32_t> ids, ConstTensorView table, std::int64_t row_begin,
                         TensorView out) override;
  void embedding_backward(std::span<const std::int32_t> ids, ConstTensorView d_out, std::int64_t row_begin,
                          TensorView d_table, bool accumulate) override;
  void position_forward(ConstTensorView table, std::int64_t sequence, TensorView out) override;
  void position_backward(ConstTensorView d_out, std::int64_t sequence, TensorView d_table, bool accumulate) override;
  void rotary(TensorView x, std::int64_t heads, std::int64_t head_dim, ConstTensorView table, std::int64_t sequence,
              bool inverse) override;

  // norm.cc
  void norm_forward(NormType type, ConstTensorView x, ConstTensorView weight, ConstTensorView bias, double epsilon,
                    TensorView y, TensorView stats) override;
  void norm_apply(NormType type, ConstTensorView x, ConstTensorView stats, ConstTensorView weight, ConstTensorView bias,
                  TensorView y) override;
  void norm_backward_input(NormType type, ConstTensorView d_y, ConstTensorView x, ConstTensorView stats,
                           ConstTensorView weight, ConstTensorView addend, TensorView d_x) override;
  void norm_backward_weight(NormType type, ConstTensorView d_y, ConstTensorView x, ConstTensorView stats,
                            TensorView d_weight, TensorView d_bias, bool accumulate) override;
  void row_square_sums(ConstTensorView x, TensorView sums) override;
  void stats_of_square_sums(ConstTensorView sums, std::int64_t columns_total, double epsilon,
                            TensorView stats) override;
  void norm_row_dots(ConstTensorView d_y, ConstTensorView x, ConstTensorView stats, ConstTensorView weight,
                     TensorView dots) override;
  void norm_backward_input_of_dots(ConstTensorView d_y, ConstTensorView x, ConstTensorView stats,
                                   ConstTensorView weight, ConstTensorView dots, std::int64_t columns_total,
                                   ConstTensorView addend, TensorView d_x) override;

  // attention.cc
  void attention_forward(const AttentionForward& work) override;
  void attention_backward(const AttentionBackward& work) override;

  // loss.cc
  void row_maximum(ConstTensorView logits, TensorView row_max) override;
  void softmax_sum(ConstTensorView logits, ConstTensorView row_max, std::span<const std::int32_t> targets,
                   std::int64_t vocabulary_begin, TensorView row_sum, TensorView target_logit) override;
  void cross_entropy_loss(ConstTensorView row_max, ConstTensorView row_sum, ConstTensorView target_logit,
                          std::span<const std::int32_t> targets, TensorView loss) override;
  void cross_entropy_backward(TensorView logits, ConstTensorView row_max, ConstTensorView row_sum,
                              std::span<const std::int32_t> targets, std::int64_t vocabulary_begin,
                              double scale) override;

  // optimizer.cc
  void adamw(const AdamW& step, TensorView weights, ConstTensorView gradients, TensorView first_moment,
             TensorView second_moment, TensorView rounded) override;
  void square_blocks(ConstTensorView x, TensorView blocks) override;

 private:
  cpu::Team team_;
  float* scratch_ = nullptr;
};

}  // namespace trireme::kernels
