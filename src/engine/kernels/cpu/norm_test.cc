#include "engine/kernels/cpu/test_workspace.h"

namespace trireme::kernels {
namespace {

class CpuNorm : public testing::TestWithParam<NormType> {
 protected:
  static constexpr double kEpsilon = 1e-5;
  static bool layer() { return GetParam() == NormType::kLayerNorm; }
  template <class Work>
  static ConstTensorView bias(Work& w) {
    return layer() ? w.random("bias", whole(1), w.columns) : ConstTensorView{};
  }
  // Mean and positive inverse deviation of each row.
  template <class Work>
  static ConstTensorView stats(Kernels& kernels, Work& w) {
    const TensorView result = w.output("stats", w.rows, whole(2));
    kernels.norm_forward(GetParam(), w.random("x"), w.random("weight", whole(1), w.columns), bias(w), kEpsilon,
                         w.output("y"), result);
    return result;
  }
};

// Columns of one or three: x - mean cancels, and 1 / deviation multiplies what is left.
TEST_P(CpuNorm, Forward) {
  for (const std::int64_t rows : {1, 3, 7, 130}) {
    for (const std::int64_t columns : {1, 3, 17, 65, 257, 1000}) {
      expect_kernel(rows, columns, {.tolerance = columns <= 3 ? 4e-4 : 6e-6, .rows_at_a_time = 1},
                    [&](Kernels& kernels, auto& w) { this->stats(kernels, w); });
    }
  }
}

// With the same stats the bits are the reference's; and norm_forward gives them too.
TEST_P(CpuNorm, ApplyHasTheBitsOfForward) {
  expect_kernel_on_shapes({.tolerance = 5e-6, .reference_bits = true, .rows_at_a_time = 1, .columns_alone = true},
                          [&](Kernels& kernels, auto& w) {
                            kernels.norm_apply(GetParam(), w.random("x"), w.random("stats of rows", w.rows, whole(2)),
                                               w.random("weight", whole(1), w.columns), this->bias(w), w.output("y"));
                          });
  Inputs inputs;
  CpuKernels kernels(1);
  run_at<float>({whole(7), whole(100)}, inputs, kernels, [&](Kernels& k, auto& w) {
    const auto weight = w.random("weight", whole(1), w.columns);
    const TensorView stats = w.output("stats", w.rows, whole(2)), y = w.output("y"), again = w.output("again");
    k.norm_forward(GetParam(), w.random("x"), weight, this->bias(w), kEpsilon, y, stats);
    k.norm_apply(GetParam(), w.random("x"), stats, weight, this->bias(w), again);
    for (std::int64_t i = 0; i < y.elements(); ++i) {
      ASSERT_EQ(reinterpret_cast<float*>(y.data)[i], reinterpret_cast<float*>(again.data)[i]);
    }
  });
}

TEST_P(CpuNorm, BackwardInput) {
  expect_kernel_on_shapes({.tolerance = 2e-5, .rows_at_a_time = 1}, [&](Kernels& kernels, auto& w) {
    const auto stats = w.random("stats of rows", w.rows, whole(2));
    const auto weight = w.random("weight", whole(1), w.columns);
    const auto backward = [&](ConstTensorView addend, TensorView d_x) {
      kernels.norm_backward_input(GetParam(), w.random("d_y"), w.random("x"), stats, weight, addend, d_x);
    };
    backward({}, w.output("d_x"));
    backward(w.random("addend"), w.output("d_x + addend"));
    const TensorView in_place = w.update("addend, then d_x");
    backward(in_place, in_place);
  });
}

TEST_P(CpuNorm, BackwardWeight) {
  for (const bool accumulate : {false, true}) {
    expect_kernel_on_shapes(
        {.tolerance = 1e-5, .reference_bits = true, .columns_alone = true}, [&](Kernels& kernels, auto& w) {
          kernels.norm_backward_weight(GetParam(), w.random("d_y"), w.random("x"),
                                       w.random("stats of rows", w.rows, whole(2)),
                                       w.update("d_weight", whole(1), w.columns),
                                       layer() ? w.update("d_bias", whole(1), w.columns) : TensorView{}, accumulate);
        });
  }
}

// A row of equal numbers has no deviation: epsilon alone, and nothing infinite.
TEST_P(CpuNorm, ConstantRows) {
  CpuKernels kernels(1);
  std::vector<float> x(100, 3.0f), weight(100, GetParam() == NormType::kRmsNormOffset ? 0.0f : 1.0f), y(100), stats(2),
      d_y(100, 1.0f), d_x(100);
  kernels.norm_forward(GetParam(), row_of(x), row_of(weight), {}, kEpsilon, row_of(y), row_of(stats));
  kernels.norm_backward_input(GetParam(), row_of(d_y), row_of(x), row_of(stats), row_of(weight), {}, row_of(d_x));
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_NEAR(y[i], layer() ? 0.0f : 1.0f, 1e-5f);
    EXPECT_NEAR(d_x[i], 0.0f, 1e-3f);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, CpuNorm,
                         testing::Values(NormType::kLayerNorm, NormType::kRmsNorm, NormType::kRmsNormOffset));

// Of rows that are cut over ranks: the columns are a rank's.
template <class Work>
TensorView line(Work& w, std::string_view name) {
  return w.output(name, whole(1), w.rows);
}

// Up to a thousand terms of both signs.
TEST(CpuCutNorm, Sums) {
  expect_kernel_on_shapes({.tolerance = 3e-5, .rows_at_a_time = 1}, [](Kernels& kernels, auto& w) {
    kernels.row_square_sums(w.random("x"), line(w, "sums"));
    kernels.norm_row_dots(w.random("d_y"), w.random("x"), w.random("stats of rows", w.rows, whole(2)),
                          w.random("weight", whole(1), w.columns), line(w, "dots"));
  });
}

TEST(CpuCutNorm, WhatBecomesOfThem) {
  expect_kernel_on_shapes({.tolerance = 2e-5, .reference_bits = true, .rows_at_a_time = 1, .columns_alone = true},
                          [](Kernels& kernels, auto& w) {
                            const std::int64_t columns = 3 * w.columns.total;
                            const auto stats = w.random("stats of rows", w.rows, whole(2));
                            const auto weight = w.random("weight", whole(1), w.columns);
                            const auto dots = w.random("dots", whole(1), w.rows);
                            const auto backward = [&](ConstTensorView addend, TensorView d_x) {
                              kernels.norm_backward_input_of_dots(w.random("d_y"), w.random("x"), stats, weight, dots,
                                                                  columns, addend, d_x);
                            };
                            kernels.stats_of_square_sums(w.positive("sums", whole(1), w.rows), columns, 1e-5,
                                                         w.output("stats", w.rows, whole(2)));
                            backward({}, w.output("d_x"));
                            backward(w.random("addend"), w.output("d_x + addend"));
                            const TensorView in_place = w.update("addend, then d_x");
                            backward(in_place, in_place);
                          });
}

// In whichever parts, y, stats, d_x and d_x in place of an addend.
void run_rms_norm(Kernels& kernels, Workspace<float>& w, bool cut) {
  const auto x = w.random("x"), d_y = w.random("d_y"), weight = w.random("weight", whole(1), w.columns);
  const TensorView y = w.output("y"), stats = w.output("stats", w.rows, whole(2)), d_x = w.output("d_x");
  const TensorView sum = w.update("addend, then d_x");
  if (!cut) {
    kernels.norm_forward(NormType::kRmsNorm, x, weight, {}, 1e-5, y, stats);
    kernels.norm_backward_input(NormType::kRmsNorm, d_y, x, stats, weight, {}, d_x);
    return kernels.norm_backward_input(NormType::kRmsNorm, d_y, x, stats, weight, sum, sum);
  }
  std::vector<float> sums(static_cast<std::size_t>(w.rows.count)), dots = sums;
  kernels.row_square_sums(x, row_of(sums));
  kernels.stats_of_square_sums(row_of(sums), w.columns.count, 1e-5, stats);
  kernels.norm_apply(NormType::kRmsNorm, x, stats, weight, {}, y);
  kernels.norm_row_dots(d_y, x, stats, weight, row_of(dots));
  kernels.norm_backward_input_of_dots(d_y, x, stats, weight, row_of(dots), w.columns.count, {}, d_x);
  kernels.norm_backward_input_of_dots(d_y, x, stats, weight, row_of(dots), w.columns.count, sum, sum);
}

TEST(CpuCutNorm, OneRankHasTheBitsOfTheWhole) {
  Inputs inputs;
  for (const int threads : {1, 2, 3}) {
    CpuKernels kernels(threads);
    for (const std::int64_t rows : {1, 3, 130}) {
      for (const std::int64_t columns : {1, 3, 5, 7, 65, 257, 1000}) {
        SCOPED_TRACE(fmt::format("{} rows, {} columns, {} threads", rows, columns, threads));
        const Place place{whole(rows), whole(columns)};
        const auto result = [&](bool cut) {
          return run_at<float>(place, inputs, kernels,
                               [&](Kernels& k, Workspace<float>& w) { run_rms_norm(k, w, cut); });
        };
        expect_same_bits(result(true), result(false));
      }
    }
  }
}

}  // namespace
}  // namespace trireme::kernels
