#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "engine/kernels/reference/reference_kernels.h"
#include "engine/kernels/reference/test_tensor.h"

namespace trireme::kernels {
namespace {

using Tensor = TestTensor<double>;

constexpr std::int64_t kRows = 3;
constexpr std::int64_t kVocabulary = 6;
constexpr std::array<std::int32_t, 3> kTargets{4, 0, 2};

class ReferenceLoss : public testing::Test {
 protected:
  double forward() {
    kernels_.row_maximum(logits_.view(), row_max_.view());
    kernels_.softmax_sum(logits_.view(), row_max_.view(), targets_, 0, row_sum_.view(), target_logit_.view());
    kernels_.cross_entropy_loss(row_max_.view(), row_sum_.view(), target_logit_.view(), targets_, loss_.view());
    double sum = 0;
    for (double value : loss_.values) sum += value;
    return sum;
  }
  ReferenceKernels kernels_;
  std::array<std::int32_t, 3> targets_ = kTargets;
  Tensor logits_ = Tensor::random(kRows, kVocabulary, "logits");
  Tensor row_max_ = Tensor(1, kRows);
  Tensor row_sum_ = Tensor(1, kRows);
  Tensor target_logit_ = Tensor(1, kRows);
  Tensor loss_ = Tensor(1, kRows);
};

TEST_F(ReferenceLoss, IsMinusTheLogProbabilityOfTheTarget) {
  forward();
  for (std::int64_t t = 0; t < kRows; ++t) {
    double sum = 0;
    for (std::int64_t j = 0; j < kVocabulary; ++j) sum += std::exp(logits_(t, j));
    const double probability = std::exp(logits_(t, kTargets[static_cast<std::size_t>(t)])) / sum;
    EXPECT_NEAR(loss_(0, t), -std::log(probability), 1e-15);
  }
}

TEST_F(ReferenceLoss, Gradient) {
  forward();
  Tensor gradient = logits_;
  kernels_.cross_entropy_backward(gradient.view(), row_max_.view(), row_sum_.view(), kTargets, 0, 0.25);
  Tensor quarter = gradient;
  for (double& value : quarter.values) value *= 4.0;
  expect_gradient(logits_, quarter, [&] { return forward(); });
}

TEST_F(ReferenceLoss, VocabularyHalvesCombineToTheWhole) {
  forward();
  Tensor whole = logits_;
  kernels_.cross_entropy_backward(whole.view(), row_max_.view(), row_sum_.view(), kTargets, 0, 1.0);

  constexpr std::int64_t kHalf = kVocabulary / 2;
  Tensor maximum(2, kRows);
  for (std::int64_t half = 0; half < 2; ++half) {
    kernels_.row_maximum(column_range(logits_.view(), half * kHalf, kHalf), row_range(maximum.view(), half, 1));
  }
  Tensor combined(1, kRows);
  for (std::int64_t t = 0; t < kRows; ++t) combined(0, t) = std::max(maximum(0, t), maximum(1, t));
  EXPECT_EQ(combined.values, row_max_.values);

  Tensor sums(1, kRows);
  Tensor logit(1, kRows);
  for (std::int64_t half = 0; half < 2; ++half) {
    Tensor part(2, kRows);
    kernels_.softmax_sum(column_range(logits_.view(), half * kHalf, kHalf), combined.view(), kTargets, half * kHalf,
                         row_range(part.view(), 0, 1), row_range(part.view(), 1, 1));
    kernels_.add(sums.view(), row_range(part.view(), 0, 1));
    kernels_.add(logit.view(), row_range(part.view(), 1, 1));
  }
  EXPECT_EQ(logit.values, target_logit_.values);
  Tensor loss(1, kRows);
  kernels_.cross_entropy_loss(combined.view(), sums.view(), logit.view(), kTargets, loss.view());
  for (std::int64_t t = 0; t < kRows; ++t) EXPECT_NEAR(loss(0, t), loss_(0, t), 1e-15);

  for (std::int64_t half = 0; half < 2; ++half) {
    kernels_.cross_entropy_backward(column_range(logits_.view(), half * kHalf, kHalf), combined.view(), sums.view(),
                                    kTargets, half * kHalf, 1.0);
  }
  for (std::size_t i = 0; i < whole.values.size(); ++i) EXPECT_NEAR(logits_.values[i], whole.values[i], 1e-15);
}

// Rows without loss: the first, the last, all. Zeros are exact, whatever the logits, and on the rank of the other half
// of the vocabulary too; the other rows are as they were.
TEST_F(ReferenceLoss, IgnoredRowsHaveNeitherLossNorGradient) {
  forward();
  const Tensor losses = loss_;
  Tensor gradient = logits_;
  kernels_.cross_entropy_backward(gradient.view(), row_max_.view(), row_sum_.view(), kTargets, 0, 0.25);
  for (const std::array<bool, 3>& ignored :
       {std::array{true, false, false}, {false, false, true}, {true, true, true}}) {
    for (std::size_t t = 0; t < targets_.size(); ++t) targets_[t] = ignored[t] ? kIgnoredTarget : kTargets[t];
    forward();
    Tensor halves = logits_;
    halves(2, 1) = ignored[2] ? std::nan("") : halves(2, 1);
    for (std::int64_t half : {0, 1}) {
      kernels_.cross_entropy_backward(column_range(halves.view(), half * kVocabulary / 2, kVocabulary / 2),
                                      row_max_.view(), row_sum_.view(), targets_, half * kVocabulary / 2, 0.25);
    }
    for (std::int64_t t = 0; t < kRows; ++t) {
      const bool none = ignored[static_cast<std::size_t>(t)];
      EXPECT_EQ(loss_(0, t), none ? 0.0 : losses(0, t));
      for (std::int64_t j = 0; j < kVocabulary; ++j) EXPECT_EQ(halves(t, j), none ? 0.0 : gradient(t, j));
    }
  }
}

TEST_F(ReferenceLoss, LargeLogitsDoNotOverflow) {
  for (double& value : logits_.values) value *= 1e4;
  EXPECT_TRUE(std::isfinite(forward()));
}

TEST_F(ReferenceLoss, ShapesAreChecked) {
  Tensor wrong(1, kRows + 1);
  EXPECT_THROW(kernels_.row_maximum(logits_.view(), wrong.view()), InternalError);
  EXPECT_THROW(kernels_.softmax_sum(logits_.view(), row_max_.view(), std::span(kTargets).first(2), 0, row_sum_.view(),
                                    target_logit_.view()),
               InternalError);
  EXPECT_THROW(kernels_.cross_entropy_loss(row_max_.view(), row_sum_.view(), target_logit_.view(),
                                           std::span(kTargets).first(2), loss_.view()),
               InternalError);
  EXPECT_THROW(kernels_.cross_entropy_backward(logits_.view(), row_max_.view(), row_sum_.view(),
                                               std::span(kTargets).first(2), 0, 1.0),
               InternalError);
}

}  // namespace
}  // namespace trireme::kernels
