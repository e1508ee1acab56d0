#include <array>
#include <cmath>

#include "base/attention_tile.h"
#include "base/error.h"
#include "engine/kernels/reference/reference_kernels.h"
#include "engine/kernels/reference/test_tensor.h"

namespace trireme::kernels {
namespace {

using Tensor = TestTensor<double>;

constexpr std::array<std::uint64_t, 2> kStreams{21, 22};

struct Case {
  std::int64_t heads;
  std::int64_t kv_heads;
  double dropout;
  std::int64_t window = 0;
};

// Two sequences of five tokens; q, k and v are parts of one fused projection, as in the layers.
class ReferenceAttention : public testing::TestWithParam<Case> {
 protected:
  ReferenceAttention() {
    shape_ = {.sequences = 2,
              .sequence = 5,
              .heads = GetParam().heads,
              .kv_heads = GetParam().kv_heads,
              .head_dim = 3,
              .scale = 0.6,
              .window = GetParam().window,
              .head_begin = 1,
              .dropout = {.probability = GetParam().dropout, .seed = 3, .streams = kStreams}};
  }
  std::int64_t width() const { return shape_.heads * shape_.head_dim; }
  std::int64_t kv_width() const { return shape_.kv_heads * shape_.head_dim; }
  template <class View>
  View q(View fused) const {
    return column_range(fused, 0, width());
  }
  template <class View>
  View k(View fused) const {
    return column_range(fused, width(), kv_width());
  }
  template <class View>
  View v(View fused) const {
    return column_range(fused, width() + kv_width(), kv_width());
  }

  double forward() {
    kernels_.attention_forward({.shape = shape_,
                                .q = q(ConstTensorView(qkv_.view())),
                                .k = k(ConstTensorView(qkv_.view())),
                                .v = v(ConstTensorView(qkv_.view())),
                                .out = out_.view(),
                                .log_sum_exp = log_sum_exp_.view(),
                                .scratch = scratch_.view()});
    return weighted_sum(d_out_, out_);
  }

  static constexpr std::int64_t kTokens = 10;
  ReferenceKernels kernels_;
  AttentionShape shape_;
  Tensor qkv_ = Tensor::random(kTokens, (GetParam().heads + 2 * GetParam().kv_heads) * 3, "qkv");
  Tensor d_out_ = Tensor::random(kTokens, GetParam().heads * 3, "d_out");
  Tensor out_ = Tensor(kTokens, GetParam().heads * 3);
  Tensor log_sum_exp_ = Tensor(2 * GetParam().heads, 5);
  Tensor scratch_ = Tensor(1, attention_backward_scratch(5, 3));
};

TEST_P(ReferenceAttention, ForwardIsTheSoftmaxOfTheWholeMatrix) {
  forward();
  const std::int64_t s = shape_.sequence;
  const std::int64_t d = shape_.head_dim;
  for (std::int64_t i = 0; i < shape_.sequences; ++i) {
    for (std::int64_t head = 0; head < shape_.heads; ++head) {
      const std::int64_t kv = head * shape_.kv_heads / shape_.heads;
      Tensor weights(s, s);
      for (std::int64_t a = 0; a < s; ++a) {
        double sum = 0;
        for (std::int64_t b = 0; b < s; ++b) {
          double score = 0;
          for (std::int64_t j = 0; j < d; ++j) {
            score += qkv_(i * s + a, head * d + j) * qkv_(i * s + b, width() + kv * d + j);
          }
          const bool seen = b <= a && (shape_.window == 0 || b > a - shape_.window);
          weights(a, b) = seen ? std::exp(shape_.scale * score) : 0.0;
          sum += weights(a, b);
        }
        EXPECT_NEAR(log_sum_exp_(i * shape_.heads + head, a), std::log(sum), 1e-14);
        for (std::int64_t b = 0; b < s; ++b) {
          const auto element = static_cast<std::uint64_t>(((1 + head) * s + a) * s + b);
          const double p = shape_.dropout.probability;
          const RandomKey key{3, kStreams[static_cast<std::size_t>(i)]};
          const bool kept = p == 0.0 || random_uniform(key, element) >= p;
          weights(a, b) = kept ? weights(a, b) / sum / (1.0 - p) : 0.0;
        }
        for (std::int64_t j = 0; j < d; ++j) {
          double expected = 0;
          for (std::int64_t b = 0; b < s; ++b) {
            expected += weights(a, b) * qkv_(i * s + b, width() + kv_width() + kv * d + j);
          }
          EXPECT_NEAR(out_(i * s + a, head * d + j), expected, 1e-14);
        }
      }
    }
  }
}

TEST_P(ReferenceAttention, Gradient) {
  forward();
  Tensor d_qkv(qkv_.rows, qkv_.columns, 7.0);
  kernels_.attention_backward({.shape = shape_,
                               .q = q(ConstTensorView(qkv_.view())),
                               .k = k(ConstTensorView(qkv_.view())),
                               .v = v(ConstTensorView(qkv_.view())),
                               .out = out_.view(),
                               .log_sum_exp = log_sum_exp_.view(),
                               .d_out = d_out_.view(),
                               .d_q = q(d_qkv.view()),
                               .d_k = k(d_qkv.view()),
                               .d_v = v(d_qkv.view()),
                               .scratch = scratch_.view()});
  expect_gradient(qkv_, d_qkv, [&] { return forward(); });
}

TEST_P(ReferenceAttention, WindowsOfTheSequenceAndMoreHideNothing) {
  shape_.window = 0;
  forward();
  const std::vector<double> out = out_.values, log_sum_exp = log_sum_exp_.values;
  for (const std::int64_t window : {5, 6, 1000}) {
    shape_.window = window;
    forward();
    EXPECT_EQ(out_.values, out) << window;
    EXPECT_EQ(log_sum_exp_.values, log_sum_exp) << window;
  }
}

TEST_P(ReferenceAttention, LargeScoresDoNotOverflow) {
  for (double& value : qkv_.values) value *= 100.0;
  forward();
  for (double value : out_.values) EXPECT_TRUE(std::isfinite(value));
}

INSTANTIATE_TEST_SUITE_P(Shapes, ReferenceAttention,
                         testing::Values(Case{2, 2, 0.0}, Case{4, 2, 0.0}, Case{3, 1, 0.0}, Case{2, 2, 0.3},
                                         Case{4, 2, 0.3}, Case{2, 2, 0.0, 1}, Case{4, 2, 0.0, 2}, Case{3, 1, 0.3, 3},
                                         Case{2, 2, 0.0, 4}, Case{2, 2, 0.3, 5}, Case{4, 2, 0.0, 9}),
                         [](const testing::TestParamInfo<Case>& test) {
                           return "Heads" + std::to_string(test.param.heads) + "Kv" +
                                  std::to_string(test.param.kv_heads) + (test.param.dropout > 0 ? "Dropout" : "") +
                                  (test.param.window > 0 ? "Window" + std::to_string(test.param.window) : "");
                         });

TEST(ReferenceAttentionChecks, ShapesAreChecked) {
  ReferenceKernels kernels;
  Tensor x(4, 6);
  Tensor log_sum_exp(6, 2);
  Tensor scratch(1, attention_forward_scratch(2, 2));
  AttentionForward work{
      .shape = {.sequences = 2, .sequence = 2, .heads = 3, .kv_heads = 3, .head_dim = 2, .dropout = {}},
      .q = x.view(),
      .k = x.view(),
      .v = x.view(),
      .out = x.view(),
      .log_sum_exp = log_sum_exp.view(),
      .scratch = scratch.view()};
  EXPECT_NO_THROW(kernels.attention_forward(work));
  AttentionForward uneven = work;
  uneven.shape.kv_heads = 2;
  EXPECT_THROW(kernels.attention_forward(uneven), InternalError);
  AttentionForward small = work;
  small.scratch = column_range(scratch.view(), 0, 8);
  EXPECT_THROW(kernels.attention_forward(small), InternalError);
  AttentionForward windowed = work;
  windowed.shape.window = -1;
  EXPECT_THROW(kernels.attention_forward(windowed), InternalError);
  AttentionForward no_streams = work;
  no_streams.shape.dropout.probability = 0.1;
  EXPECT_THROW(kernels.attention_forward(no_streams), InternalError);
}

}  // namespace
}  // namespace trireme::kernels
