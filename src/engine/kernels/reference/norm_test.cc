#include <cmath>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/kernels/reference/reference_kernels.h"
#include "engine/kernels/reference/test_tensor.h"

namespace trireme::kernels {
namespace {

using Tensor = TestTensor<double>;

constexpr std::int64_t kRows = 3;
constexpr std::int64_t kColumns = 5;
constexpr double kEpsilon = 1e-5;

class ReferenceNorm : public testing::TestWithParam<NormType> {
 protected:
  ReferenceNorm()
      : x_(Tensor::random(kRows, kColumns, "x")),
        weight_(Tensor::random(1, kColumns, "weight")),
        bias_(Tensor::random(1, kColumns, "bias")),
        d_y_(Tensor::random(kRows, kColumns, "d_y")),
        y_(kRows, kColumns),
        stats_(kRows, 2) {}

  bool layer() const { return GetParam() == NormType::kLayerNorm; }
  double factor(std::int64_t j) const {
    return GetParam() == NormType::kRmsNormOffset ? 1.0 + weight_(0, j) : weight_(0, j);
  }
  ConstTensorView bias_view() const { return layer() ? ConstTensorView(bias_.view()) : ConstTensorView(); }
  double forward() {
    kernels_.norm_forward(GetParam(), x_.view(), weight_.view(), bias_view(), kEpsilon, y_.view(), stats_.view());
    return weighted_sum(d_y_, y_);
  }

  ReferenceKernels kernels_;
  Tensor x_, weight_, bias_, d_y_, y_, stats_;
};

TEST_P(ReferenceNorm, ForwardIsTheDefinition) {
  forward();
  for (std::int64_t t = 0; t < kRows; ++t) {
    double mean = 0;
    for (std::int64_t j = 0; j < kColumns; ++j) mean += layer() ? x_(t, j) / kColumns : 0.0;
    double variance = 0;
    for (std::int64_t j = 0; j < kColumns; ++j) variance += (x_(t, j) - mean) * (x_(t, j) - mean) / kColumns;
    EXPECT_NEAR(stats_(t, 0), mean, 1e-15);
    EXPECT_NEAR(stats_(t, 1), 1.0 / std::sqrt(variance + kEpsilon), 1e-14);
    for (std::int64_t j = 0; j < kColumns; ++j) {
      const double scaled = (x_(t, j) - mean) / std::sqrt(variance + kEpsilon) * factor(j);
      EXPECT_NEAR(y_(t, j), scaled + (layer() ? bias_(0, j) : 0.0), 1e-14);
    }
  }
}

TEST_P(ReferenceNorm, ApplyGivesTheSameBits) {
  forward();
  Tensor again(kRows, kColumns);
  kernels_.norm_apply(GetParam(), x_.view(), stats_.view(), weight_.view(), bias_view(), again.view());
  EXPECT_EQ(again.values, y_.values);
}

TEST_P(ReferenceNorm, InputGradient) {
  forward();
  Tensor d_x(kRows, kColumns);
  kernels_.norm_backward_input(GetParam(), d_y_.view(), x_.view(), stats_.view(), weight_.view(), ConstTensorView(),
                               d_x.view());
  expect_gradient(x_, d_x, [&] { return forward(); });

  forward();
  const auto addend = Tensor::random(kRows, kColumns, "addend");
  Tensor sum = addend;
  kernels_.norm_backward_input(GetParam(), d_y_.view(), x_.view(), stats_.view(), weight_.view(), sum.view(),
                               sum.view());
  for (std::size_t i = 0; i < sum.values.size(); ++i) {
    EXPECT_EQ(sum.values[i], addend.values[i] + d_x.values[i]);
  }
}

TEST_P(ReferenceNorm, WeightGradient) {
  forward();
  Tensor d_weight(1, kColumns, 7.0);
  Tensor d_bias(1, kColumns, 7.0);
  const TensorView d_bias_view = layer() ? d_bias.view() : TensorView();
  const auto backward = [&](bool accumulate) {
    kernels_.norm_backward_weight(GetParam(), d_y_.view(), x_.view(), stats_.view(), d_weight.view(), d_bias_view,
                                  accumulate);
  };
  backward(false);
  expect_gradient(weight_, d_weight, [&] { return forward(); });
  if (layer()) expect_gradient(bias_, d_bias, [&] { return forward(); });
  const Tensor once = d_weight;
  forward();
  backward(true);
  EXPECT_EQ(d_weight(0, 3), once(0, 3) + once(0, 3));
}

INSTANTIATE_TEST_SUITE_P(Types, ReferenceNorm,
                         testing::Values(NormType::kLayerNorm, NormType::kRmsNorm, NormType::kRmsNormOffset));

// An RMS norm over ranks that hold so many columns each.
template <class T>
class CutNorm {
 public:
  CutNorm(Kernels& kernels, std::vector<std::int64_t> widths) : kernels_(kernels), widths_(std::move(widths)) {}

  void forward(const TestTensor<T>& x, const TestTensor<T>& weight, TestTensor<T>& y, TestTensor<T>& stats) const {
    TestTensor<T> sums(1, x.rows);
    each_rank([&](std::int64_t begin, std::int64_t width) {
      TestTensor<T> own(1, x.rows, T{7});
      kernels_.row_square_sums(column_range(x.view(), begin, width), own.view());
      kernels_.add(sums.view(), own.view());
    });
    kernels_.stats_of_square_sums(sums.view(), x.columns, kEpsilon, stats.view());
    each_rank([&](std::int64_t begin, std::int64_t width) {
      kernels_.norm_apply(NormType::kRmsNorm, column_range(x.view(), begin, width), stats.view(),
                          column_range(weight.view(), begin, width), {}, column_range(y.view(), begin, width));
    });
  }
  void backward(const TestTensor<T>& d_y, const TestTensor<T>& x, const TestTensor<T>& stats,
                const TestTensor<T>& weight, ConstTensorView addend, TestTensor<T>& d_x) const {
    TestTensor<T> dots(1, x.rows);
    each_rank([&](std::int64_t begin, std::int64_t width) {
      TestTensor<T> own(1, x.rows, T{7});
      kernels_.norm_row_dots(column_range(d_y.view(), begin, width), column_range(x.view(), begin, width), stats.view(),
                             column_range(weight.view(), begin, width), own.view());
      kernels_.add(dots.view(), own.view());
    });
    each_rank([&](std::int64_t begin, std::int64_t width) {
      kernels_.norm_backward_input_of_dots(column_range(d_y.view(), begin, width), column_range(x.view(), begin, width),
                                           stats.view(), column_range(weight.view(), begin, width), dots.view(),
                                           x.columns, addend.empty() ? addend : column_range(addend, begin, width),
                                           column_range(d_x.view(), begin, width));
    });
  }

 private:
  template <class Function>
  void each_rank(const Function& function) const {
    std::int64_t begin = 0;
    for (const std::int64_t width : widths_) {
      function(begin, width);
      begin += width;
    }
  }

  Kernels& kernels_;
  std::vector<std::int64_t> widths_;
};

template <class T>
void expect_bits_of_one_rank(std::int64_t columns) {
  ReferenceKernels kernels;
  const CutNorm<T> cut(kernels, {columns});
  const auto x = TestTensor<T>::random(kRows, columns, "x"), d_y = TestTensor<T>::random(kRows, columns, "d_y");
  const auto weight = TestTensor<T>::random(1, columns, "weight");
  const auto addend = TestTensor<T>::random(kRows, columns, "addend");
  TestTensor<T> y(kRows, columns), stats(kRows, 2, T{7}), d_x(kRows, columns);
  cut.forward(x, weight, y, stats);
  cut.backward(d_y, x, stats, weight, addend.view(), d_x);
  TestTensor<T> whole_y(kRows, columns), whole_stats(kRows, 2), whole_d_x(kRows, columns);
  const auto rms = NormType::kRmsNorm;
  kernels.norm_forward(rms, x.view(), weight.view(), {}, kEpsilon, whole_y.view(), whole_stats.view());
  kernels.norm_backward_input(rms, d_y.view(), x.view(), stats.view(), weight.view(), addend.view(), whole_d_x.view());
  EXPECT_EQ(y.values, whole_y.values);
  EXPECT_EQ(stats.values, whole_stats.values);
  EXPECT_EQ(d_x.values, whole_d_x.values);
}

TEST(ReferenceCutNorm, OneRankHasTheBitsOfTheWhole) {
  for (const std::int64_t columns : {1, 3, 5, 7, 100}) {
    SCOPED_TRACE(columns);
    expect_bits_of_one_rank<float>(columns);
    expect_bits_of_one_rank<double>(columns);
  }
}

TEST(ReferenceCutNorm, GradientsOverThreeRanks) {
  ReferenceKernels kernels;
  const CutNorm<double> cut(kernels, {2, 1, 2});
  auto x = Tensor::random(kRows, kColumns, "x"), weight = Tensor::random(1, kColumns, "weight");
  const auto d_y = Tensor::random(kRows, kColumns, "d_y");
  Tensor y(kRows, kColumns), stats(kRows, 2), d_x(kRows, kColumns), d_weight(1, kColumns);
  const auto forward = [&] {
    cut.forward(x, weight, y, stats);
    return weighted_sum(d_y, y);
  };
  forward();
  cut.backward(d_y, x, stats, weight, {}, d_x);
  kernels.norm_backward_weight(NormType::kRmsNorm, d_y.view(), x.view(), stats.view(), d_weight.view(), {}, false);
  expect_gradient(x, d_x, forward);
  expect_gradient(weight, d_weight, forward);
}

TEST(ReferenceNormChecks, RowsCutOverRanks) {
  ReferenceKernels kernels;
  Tensor x(2, 3, 1.0), weight(1, 3), stats(2, 2), sums(1, 2), few(1, 1);
  const TensorView v = x.view(), s = stats.view(), w = weight.view();
  EXPECT_THROW(kernels.row_square_sums(v, few.view()), InternalError);
  EXPECT_THROW(kernels.stats_of_square_sums(few.view(), 3, kEpsilon, s), InternalError);
  EXPECT_THROW(kernels.stats_of_square_sums(sums.view(), 0, kEpsilon, s), InternalError);
  EXPECT_THROW(kernels.norm_row_dots(v, v, s, w, few.view()), InternalError);
  EXPECT_THROW(kernels.norm_backward_input_of_dots(v, v, s, w, few.view(), 3, {}, v), InternalError);
  EXPECT_THROW(kernels.norm_backward_input_of_dots(v, v, s, w, sums.view(), 2, {}, v), InternalError);
}

TEST(ReferenceNormChecks, RmsHasNoBias) {
  ReferenceKernels kernels;
  Tensor x(2, 3, 1.0);
  Tensor weight(1, 3);
  Tensor stats(2, 2);
  for (const NormType type : {NormType::kRmsNorm, NormType::kRmsNormOffset}) {
    EXPECT_THROW(kernels.norm_forward(type, x.view(), weight.view(), weight.view(), kEpsilon, x.view(), stats.view()),
                 InternalError);
    EXPECT_THROW(
        kernels.norm_backward_weight(type, x.view(), x.view(), stats.view(), weight.view(), weight.view(), false),
        InternalError);
  }
}

}  // namespace
}  // namespace trireme::kernels
