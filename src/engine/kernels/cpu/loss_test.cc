#include <vector>

#include "engine/kernels/cpu/test_workspace.h"

namespace trireme::kernels {
namespace {

constexpr Promise kExactRows{.tolerance = 5e-7, .reference_bits = true, .rows_at_a_time = 1};

// Targets of the workspace's rows: of columns [5, 5 + columns) some are below, some here, some above.
constexpr std::int64_t kVocabularyBegin = 5;
template <class Work>
std::vector<std::int32_t> targets_of(const Work& w) {
  std::vector<std::int32_t> targets;
  for (std::int64_t i = 0; i < w.rows.count; ++i) {
    targets.push_back(static_cast<std::int32_t>((w.rows.begin + i) * 37 % (w.columns.count + 10)));
  }
  return targets;
}
// One number a row, stored as a row.
template <class Work>
ConstTensorView row_maximum_of(Work& w) {
  return w.random("row_max", whole(1), w.rows);
}

TEST(CpuLoss, RowMaximum) {
  expect_kernel_on_shapes(kExactRows, [](Kernels& kernels, auto& w) {
    kernels.row_maximum(w.random("logits"), w.output("row_max", whole(1), w.rows));
  });
}

TEST(CpuLoss, SoftmaxSum) {
  // Relative: sums are up to exp(7) * 1000; the reference in float32 sums 1000 numbers one by one.
  expect_kernel_on_shapes({.tolerance = 1e-5, .rows_at_a_time = 1}, [](Kernels& kernels, auto& w) {
    kernels.softmax_sum(w.random("logits"), row_maximum_of(w), targets_of(w), kVocabularyBegin,
                        w.output("row_sum", whole(1), w.rows), w.output("target_logit", whole(1), w.rows));
  });
}

TEST(CpuLoss, CrossEntropyLoss) {
  for (const std::int64_t rows : {1, 3, 7, 130}) {
    expect_kernel(rows, 1, kExactRows, [](Kernels& kernels, auto& w) {
      kernels.cross_entropy_loss(row_maximum_of(w), w.positive("row_sum", whole(1), w.rows),
                                 w.random("target_logit", whole(1), w.rows), targets_of(w),
                                 w.output("loss", whole(1), w.rows));
    });
  }
}

// The whole chain, as a head runs it: the gradient's probabilities add up to one.
template <class Work>
void run_chain(Kernels& kernels, Work& w, TensorView logits, double scale, const std::vector<std::int32_t>& targets) {
  const TensorView row_max = w.output("row_max", whole(1), w.rows), row_sum = w.output("row_sum", whole(1), w.rows);
  const TensorView target_logit = w.output("target_logit", whole(1), w.rows);
  kernels.row_maximum(logits, row_max);
  kernels.softmax_sum(logits, row_max, targets, kVocabularyBegin, row_sum, target_logit);
  kernels.cross_entropy_loss(row_max, row_sum, target_logit, targets, w.output("loss", whole(1), w.rows));
  kernels.cross_entropy_backward(logits, row_max, row_sum, targets, kVocabularyBegin, scale);
}

TEST(CpuLoss, Chain) {
  expect_kernel_on_shapes({.tolerance = 1e-5, .rows_at_a_time = 1}, [](Kernels& kernels, auto& w) {
    run_chain(kernels, w, w.update("logits, then gradient"), 0.25, targets_of(w));
  });
}

// Which rows of a block bear no loss: the first, the last, all.
using Ignores = bool (*)(const Extent& rows, std::int64_t row);
constexpr Ignores kIgnores[] = {[](const Extent&, std::int64_t row) { return row == 0; },
                                [](const Extent& rows, std::int64_t row) { return row == rows.total - 1; },
                                [](const Extent&, std::int64_t) { return true; }};

TEST(CpuLoss, ChainWithIgnoredRows) {
  for (const Ignores ignores : kIgnores) {
    expect_kernel_on_shapes({.tolerance = 1e-5, .rows_at_a_time = 1}, [ignores](Kernels& kernels, auto& w) {
      std::vector<std::int32_t> targets = targets_of(w);
      for (std::int64_t i = 0; i < w.rows.count; ++i) {
        if (ignores(w.rows, w.rows.begin + i)) targets[static_cast<std::size_t>(i)] = kIgnoredTarget;
      }
      run_chain(kernels, w, w.update("logits, then gradient"), 0.25, targets);
    });
  }
}

// Exactly zero, every element, whatever the logits. On one rank, and on the second of two that share the vocabulary.
void expect_zeros_where_ignored(std::int64_t vocabulary_begin, Ignores ignores) {
  constexpr std::int64_t kRows = 3, kColumns = 19;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> logits, most(kRows, 3.0f), sum, chosen(kRows, 1.0f), loss(kRows, nan);
  std::vector<std::int32_t> targets;
  for (std::int64_t t = 0; t < kRows; ++t) {
    const bool ignored = ignores(whole(kRows), t);
    logits.insert(logits.end(), kColumns, ignored ? nan : 0.5f);
    sum.push_back(ignored ? nan : 40.0f);
    targets.push_back(ignored ? kIgnoredTarget : static_cast<std::int32_t>(vocabulary_begin + t));
  }
  const TensorView block = make_view(reinterpret_cast<std::byte*>(logits.data()), DType::kF32, kRows, kColumns);
  CpuKernels kernels(2);
  kernels.cross_entropy_loss(row_of(most), row_of(sum), row_of(chosen), targets, row_of(loss));
  kernels.cross_entropy_backward(block, row_of(most), row_of(sum), targets, vocabulary_begin, 0.5);
  for (std::int64_t t = 0; t < kRows; ++t) {
    const bool ignored = ignores(whole(kRows), t);
    EXPECT_EQ(loss[static_cast<std::size_t>(t)], ignored ? 0.0f : std::log(40.0f) + 3.0f - 1.0f);
    for (std::int64_t j = 0; j < kColumns; ++j) {
      const float gradient = logits[static_cast<std::size_t>(t * kColumns + j)];
      EXPECT_EQ(gradient == 0.0f, ignored) << t << ", " << j << ": " << gradient;
    }
  }
}

TEST(CpuLoss, AnIgnoredRowHasNeitherLossNorGradient) {
  for (const Ignores ignores : kIgnores) {
    expect_zeros_where_ignored(0, ignores);
    expect_zeros_where_ignored(19, ignores);
  }
}

// The gradient's elements are elementwise: some columns alone, with sums that came from elsewhere.
TEST(CpuLoss, GradientOfColumnsAlone) {
  Inputs inputs;
  CpuKernels kernels(2);
  const std::int64_t columns = 100;
  const auto run = [](Kernels& k, auto& w) {
    const std::vector<std::int32_t> targets(static_cast<std::size_t>(w.rows.count), 37);
    k.cross_entropy_backward(w.update("logits"), row_maximum_of(w), w.positive("row_sum", whole(1), w.rows), targets,
                             w.columns.begin, 0.3);
  };
  const auto result = run_at<float>({whole(3), whole(columns)}, inputs, kernels, run);
  for (const std::int64_t begin : {0, 1, 30, 37, 38}) {
    for (const std::int64_t count : {1, 7, 33, 62}) {
      const Place part{whole(3), {columns, begin, count}, begin % 4};
      expect_same_bits(run_at<float>(part, inputs, kernels, run), result);
    }
  }
}

TEST(CpuLoss, LargeLogits) {
  for (const std::int64_t columns : {1, 3, 17, 257}) {
    CpuKernels kernels(1);
    for (const float extreme : {1e4f, -1e4f}) {
      std::vector<float> logits(static_cast<std::size_t>(columns), 0.0f), most(1), sum(1), chosen(1), loss(1);
      logits.back() = extreme;
      const std::vector<std::int32_t> targets{static_cast<std::int32_t>(columns - 1)};
      kernels.row_maximum(row_of(logits), row_of(most));
      kernels.softmax_sum(row_of(logits), row_of(most), targets, 0, row_of(sum), row_of(chosen));
      kernels.cross_entropy_loss(row_of(most), row_of(sum), row_of(chosen), targets, row_of(loss));
      kernels.cross_entropy_backward(row_of(logits), row_of(most), row_of(sum), targets, 0, 1.0);
      const bool certain = extreme > 0 || columns == 1;
      EXPECT_EQ(chosen[0], extreme);
      EXPECT_EQ(most[0], certain ? extreme : 0.0f);
      EXPECT_NEAR(loss[0], certain ? 0.0 : 1e4 + std::log(static_cast<double>(columns) - 1.0), 1e-3);
      EXPECT_NEAR(logits.back(), certain ? 0.0f : -1.0f, 1e-6);
      for (std::size_t j = 0; j + 1 < logits.size(); ++j) {
        EXPECT_NEAR(logits[j], certain ? 0.0 : 1.0 / (static_cast<double>(columns) - 1.0), 1e-6);
      }
    }
  }
}

// NaN must not vanish: a run that diverges has to show it.
TEST(CpuLoss, NanReachesTheLoss) {
  for (const std::size_t at : {0, 5, 16, 18}) {
    std::vector<float> logits(19, 1.0f), most(1, 1.0f), sum(1), chosen(1);
    logits[at] = std::numeric_limits<float>::quiet_NaN();
    CpuKernels(1).softmax_sum(row_of(logits), row_of(most), std::vector<std::int32_t>{0}, 0, row_of(sum),
                              row_of(chosen));
    EXPECT_TRUE(std::isnan(sum[0])) << at;
  }
}

}  // namespace
}  // namespace trireme::kernels
