// Wrong shapes and types end in InternalError, not in memory that is not there.

#include <array>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/attention_tile.h"
#include "base/error.h"
#include "engine/kernels/cpu/cpu_kernels.h"
#include "engine/kernels/device.h"
#include "engine/kernels/reference/test_tensor.h"

namespace trireme::kernels {
namespace {

class CpuChecks : public testing::Test {
 protected:
  using Call = std::function<void()>;
  void expect_refused(const std::vector<std::pair<std::string, Call>>& calls) {
    for (const auto& [name, call] : calls) EXPECT_THROW(call(), InternalError) << name;
  }

  CpuKernels k_{2};
  TestTensor<float> x_{4, 6}, y_{4, 6}, other_{4, 5}, row_{1, 6}, short_row_{1, 5}, four_{1, 4}, stats_{4, 2};
  TestTensor<double> wide_{4, 6}, wide_row_{1, 6};
  std::array<std::int32_t, 4> ids_{0, 1, 2, 3};
  std::array<std::int32_t, 3> few_ids_{0, 1, 2};
};

TEST_F(CpuChecks, Elementwise) {
  const auto relu = ActivationType::kRelu;
  const std::array<std::uint64_t, 2> streams{1, 2};
  const Dropout no_streams{.probability = 0.1, .streams = {}, .sequence = 2, .columns_total = 6};
  Dropout beyond{.probability = 0.1, .streams = streams, .sequence = 2, .columns_total = 7, .column_begin = 2};
  Dropout before = beyond, all = beyond, uneven = beyond;
  before.column_begin = -1;
  all.probability = 1.0;
  uneven.sequence = 3;
  expect_refused({
      {"bias", [&] { k_.add_bias(x_.view(), short_row_.view()); }},
      {"type", [&] { k_.add_bias(wide_.view(), wide_row_.view()); }},
      {"sums", [&] { k_.column_sum(x_.view(), short_row_.view(), false); }},
      {"residual", [&] { k_.residual_add(x_.view(), other_.view(), y_.view(), {}, {}); }},
      {"bias of residual", [&] { k_.residual_add(x_.view(), x_.view(), y_.view(), short_row_.view(), {}); }},
      {"streams", [&] { k_.apply_dropout(x_.view(), y_.view(), no_streams); }},
      {"columns", [&] { k_.apply_dropout(x_.view(), y_.view(), beyond); }},
      {"columns before", [&] { k_.apply_dropout(x_.view(), y_.view(), before); }},
      {"probability", [&] { k_.apply_dropout(x_.view(), y_.view(), all); }},
      {"sequence", [&] { k_.residual_add(x_.view(), x_.view(), y_.view(), {}, uneven); }},
      {"out", [&] { k_.activation_forward(relu, {}, x_.view(), other_.view()); }},
      {"gate", [&] { k_.activation_forward(relu, other_.view(), x_.view(), y_.view()); }},
      {"d_gate", [&] { k_.activation_backward(relu, x_.view(), x_.view(), y_.view(), {}, y_.view()); }},
      {"no gate", [&] { k_.activation_backward(relu, x_.view(), {}, y_.view(), x_.view(), y_.view()); }},
      {"copy", [&] { k_.copy(x_.view(), other_.view()); }},
      {"add", [&] { k_.add(x_.view(), other_.view()); }},
      {"no memory", [&] { k_.add(make_view(static_cast<std::byte*>(nullptr), DType::kF32, 4, 6), x_.view()); }},
      {"fill", [&] { k_.fill(wide_.view(), 0.0); }},
      {"scale", [&] { k_.scale(wide_.view(), 2.0); }},
  });
}

TEST_F(CpuChecks, EmbeddingsAndNorms) {
  const auto layer = NormType::kLayerNorm;
  const auto rms = NormType::kRmsNorm;
  const auto x = x_.view(), y = y_.view(), row = row_.view(), stats = stats_.view();
  const ConstTensorView none;
  expect_refused({
      {"ids", [&] { k_.embedding_forward(few_ids_, x, 0, y); }},
      {"table", [&] { k_.embedding_forward(ids_, other_.view(), 0, y); }},
      {"d_out", [&] { k_.embedding_backward(few_ids_, x, 0, y, false); }},
      {"positions", [&] { k_.position_forward(row, 2, x); }},
      {"rows", [&] { k_.position_forward(y, 3, x); }},
      {"d_positions", [&] { k_.position_backward(x, 2, row, false); }},
      {"head_dim", [&] { k_.rotary(x, 2, 3, stats, 4, false); }},
      {"heads", [&] { k_.rotary(x, 2, 2, stats, 4, false); }},
      {"angles", [&] { k_.rotary(x, 1, 6, other_.view(), 4, false); }},
      {"stats", [&] { k_.norm_forward(layer, x, row, none, 1e-5, y, row_.view()); }},
      {"weight", [&] { k_.norm_forward(layer, x, short_row_.view(), none, 1e-5, y, stats); }},
      {"y", [&] { k_.norm_apply(layer, x, stats, row, none, other_.view()); }},
      {"bias of RMS", [&] { k_.norm_apply(rms, x, stats, row, row, y); }},
      {"bias of an offset", [&] { k_.norm_apply(NormType::kRmsNormOffset, x, stats, row, row, y); }},
      {"addend", [&] { k_.norm_backward_input(layer, x, x, stats, row, other_.view(), y); }},
      {"d_weight", [&] { k_.norm_backward_weight(layer, x, x, stats, short_row_.view(), row, false); }},
      {"d_bias", [&] { k_.norm_backward_weight(layer, x, x, stats, row, short_row_.view(), false); }},
      {"d_bias of RMS", [&] { k_.norm_backward_weight(rms, x, x, stats, row, row, false); }},
  });
}

TEST_F(CpuChecks, NormsOfRowsCutOverRanks) {
  const auto x = x_.view(), y = y_.view(), row = row_.view(), stats = stats_.view(), four = four_.view();
  const ConstTensorView none;
  expect_refused({
      {"sums", [&] { k_.row_square_sums(x, row); }},
      {"sums of stats", [&] { k_.stats_of_square_sums(row, 6, 1e-5, stats); }},
      {"no columns", [&] { k_.stats_of_square_sums(four, 0, 1e-5, stats); }},
      {"stats", [&] { k_.stats_of_square_sums(four, 6, 1e-5, x); }},
      {"dots", [&] { k_.norm_row_dots(x, x, stats, row, row); }},
      {"d_y", [&] { k_.norm_row_dots(other_.view(), x, stats, row, four); }},
      {"dots of backward", [&] { k_.norm_backward_input_of_dots(x, x, stats, row, row, 6, none, y); }},
      {"fewer columns", [&] { k_.norm_backward_input_of_dots(x, x, stats, row, four, 5, none, y); }},
      {"addend", [&] { k_.norm_backward_input_of_dots(x, x, stats, row, four, 6, other_.view(), y); }},
  });
}

TEST_F(CpuChecks, LossAndOptimizer) {
  const auto x = x_.view(), row = row_.view(), four = four_.view();
  TestTensor<double> one_block(1, 1), two_blocks(1, 2);
  expect_refused({
      {"row_max", [&] { k_.row_maximum(x, row); }},
      {"targets", [&] { k_.softmax_sum(x, four, few_ids_, 0, four, four); }},
      {"row_sum", [&] { k_.softmax_sum(x, four, ids_, 0, row, four); }},
      {"loss", [&] { k_.cross_entropy_loss(four, four, four, ids_, row); }},
      {"targets of the loss", [&] { k_.cross_entropy_loss(four, four, four, few_ids_, four); }},
      {"targets of backward", [&] { k_.cross_entropy_backward(x, four, four, few_ids_, 0, 1.0); }},
      {"sums of backward", [&] { k_.cross_entropy_backward(x, four, row, ids_, 0, 1.0); }},
      {"moments", [&] { k_.adamw({}, row, row, short_row_.view(), row, {}); }},
      {"not flat", [&] { k_.adamw({}, x, x, x, x, {}); }},
      {"blocks", [&] { k_.square_blocks(row, two_blocks.view()); }},
      {"type of blocks", [&] { k_.square_blocks(row, row_range(four, 0, 1)); }},
      {"type of x", [&] { k_.square_blocks(wide_row_.view(), one_block.view()); }},
  });
  EXPECT_NO_THROW(k_.square_blocks(row, one_block.view()));
}

TEST_F(CpuChecks, Products) {
  TestTensor<float> square(4, 4);
  TensorView overlapping = x_.view();
  overlapping.row_stride = 3;
  expect_refused({
      {"inner", [&] { k_.gemm({.a = x_.view(), .b = other_.view(), .c = square.view()}); }},
      {"c", [&] { k_.gemm({.a = x_.view(), .b = y_.view(), .transpose_b = true, .c = other_.view()}); }},
      {"type", [&] { k_.gemm({.a = wide_.view(), .b = wide_.view(), .transpose_b = true, .c = square.view()}); }},
      {"stride", [&] { k_.gemm({.a = overlapping, .b = y_.view(), .transpose_b = true, .c = square.view()}); }},
  });
  EXPECT_NO_THROW(k_.gemm({.a = x_.view(), .b = y_.view(), .transpose_b = true, .c = square.view()}));
}

TEST_F(CpuChecks, Attention) {
  TestTensor<float> log_sum_exp(6, 2), scratch(1, 2 * attention_backward_scratch(2, 2));
  TestTensor<double> wide_scratch(1, 2 * attention_backward_scratch(2, 2));
  const AttentionForward forward{
      .shape = {.sequences = 2, .sequence = 2, .heads = 3, .kv_heads = 3, .head_dim = 2, .dropout = {}},
      .q = x_.view(),
      .k = x_.view(),
      .v = x_.view(),
      .out = y_.view(),
      .log_sum_exp = log_sum_exp.view(),
      .scratch = scratch.view()};
  EXPECT_NO_THROW(k_.attention_forward(forward));
  const auto refused = [&](const std::string& name, const std::function<void(AttentionForward&)>& spoil) {
    AttentionForward work = forward;
    spoil(work);
    EXPECT_THROW(k_.attention_forward(work), InternalError) << name;
    const AttentionBackward backward{.shape = work.shape,
                                     .q = work.q,
                                     .k = work.k,
                                     .v = work.v,
                                     .out = y_.view(),
                                     .log_sum_exp = work.log_sum_exp,
                                     .d_out = y_.view(),
                                     .d_q = work.out,
                                     .d_k = y_.view(),
                                     .d_v = y_.view(),
                                     .scratch = work.scratch};
    EXPECT_THROW(k_.attention_backward(backward), InternalError) << name;
  };
  refused("groups", [](AttentionForward& work) { work.shape.kv_heads = 2; });
  refused("no heads", [](AttentionForward& work) { work.shape.kv_heads = 0; });
  refused("window", [](AttentionForward& work) { work.shape.window = -1; });
  refused("keys", [&](AttentionForward& work) { work.k = other_.view(); });
  refused("values", [&](AttentionForward& work) { work.v = wide_.view(); });
  refused("out", [&](AttentionForward& work) { work.out = other_.view(); });
  refused("log_sum_exp", [&](AttentionForward& work) { work.log_sum_exp = x_.view(); });
  refused("streams", [](AttentionForward& work) { work.shape.dropout.probability = 0.1; });
  refused("scratch", [&](AttentionForward& work) { work.scratch = column_range(scratch.view(), 0, 8); });
  refused("type of scratch", [&](AttentionForward& work) { work.scratch = wide_scratch.view(); });
}

TEST(CpuDevice, RunsTheCpuKernels) {
  const std::unique_ptr<Device> device = make_cpu_device(2);
  EXPECT_EQ(device->name(), "cpu");
  EXPECT_EQ(device->kernels().threads(), 2);
  EXPECT_THROW(make_cpu_device(0), InternalError);
}

}  // namespace
}  // namespace trireme::kernels
