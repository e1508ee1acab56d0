#include <array>

#include "engine/kernels/cpu/test_workspace.h"
#include "engine/kernels/device.h"

namespace trireme::kernels {
namespace {

constexpr Promise kExact{.tolerance = 5e-7, .reference_bits = true, .rows_at_a_time = 1, .columns_alone = true};

// Dropout of the part of a workspace; rows must be whole sequences.
template <class Work>
Dropout dropout_of(const Work& w, std::int64_t sequence, double probability) {
  static constexpr std::array<std::uint64_t, 5> kStreams{11, 12, 13, 14, 15};
  return {.probability = probability,
          .seed = 5,
          .streams = std::span(kStreams).subspan(static_cast<std::size_t>(w.rows.begin / sequence),
                                                 static_cast<std::size_t>(w.rows.count / sequence)),
          .sequence = sequence,
          .columns_total = w.columns.total + 4,
          .column_begin = 2 + w.columns.begin};
}

TEST(CpuElementwise, RowsCopiedPastTheCachesAreTheRows) {
  const std::unique_ptr<Device> cpu = make_cpu_device(1), reference = make_reference_device();
  std::vector<float> from(5000);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<float>(i);
  for (const std::int64_t row : {1, 2, 15, 16, 17, 63, 100, 257}) {
    for (const std::int64_t stride : {row, row + 1, row + 64}) {
      for (const std::int64_t begin : {0, 1, 7, 16}) {  // of the place on the host
        constexpr std::int64_t kRows = 9;
        std::vector<float> got(static_cast<std::size_t>(begin + kRows * row + 3), -1.0F), wanted = got;
        cpu->copy_rows_to_host(got.data() + begin, from.data() + 3, row, kRows, stride);
        reference->copy_rows_to_host(wanted.data() + begin, from.data() + 3, row, kRows, stride);
        EXPECT_EQ(got, wanted) << row << " floats, " << stride << " apart, at " << begin;
        EXPECT_EQ(got[static_cast<std::size_t>(begin + 2 * row)], static_cast<float>(3 + 2 * stride));
      }
    }
  }
}

TEST(CpuElementwise, AddBias) {
  expect_kernel_on_shapes(kExact, [](Kernels& kernels, auto& w) {
    kernels.add_bias(w.update("x"), w.random("bias", whole(1), w.columns));
  });
}

TEST(CpuElementwise, ColumnSum) {
  for (const bool accumulate : {false, true}) {
    expect_kernel_on_shapes({.tolerance = 5e-6, .reference_bits = true, .columns_alone = true},
                            [&](Kernels& kernels, auto& w) {
                              kernels.column_sum(w.random("x"), w.update("sums", whole(1), w.columns), accumulate);
                            });
  }
}

TEST(CpuElementwise, ResidualAdd) {
  for (const bool has_bias : {false, true}) {
    expect_kernel_on_shapes(kExact, [&](Kernels& kernels, auto& w) {
      const auto bias = has_bias ? w.random("bias", whole(1), w.columns) : ConstTensorView{};
      kernels.residual_add(w.output("out"), w.random("residual"), w.random("x"), bias, {});
    });
  }
}

TEST(CpuElementwise, ResidualAddInPlace) {
  expect_kernel_on_shapes(kExact, [](Kernels& kernels, auto& w) {
    const TensorView x = w.update("x");
    const ConstTensorView bias = w.random("bias", whole(1), w.columns);
    kernels.residual_add(x, w.random("residual"), x, bias, {});
    kernels.residual_add(x, x, w.random("more"), bias, {});
  });
}

TEST(CpuElementwise, ResidualAddWithDropout) {
  for (const std::int64_t sequence : {1, 65}) {
    for (const std::int64_t columns : {1, 3, 17, 65, 257}) {
      Promise promise = kExact;
      promise.rows_at_a_time = sequence;
      expect_kernel(sequence == 1 ? 3 : 130, columns, promise, [&](Kernels& kernels, auto& w) {
        const Dropout dropout = dropout_of(w, sequence, 0.3);
        const auto bias = w.random("bias", whole(1), w.columns);
        kernels.residual_add(w.output("out"), w.random("residual"), w.random("x"), bias, dropout);
        kernels.residual_add(w.output("out without bias"), w.random("residual"), w.random("x"), {}, dropout);
      });
    }
  }
}

TEST(CpuElementwise, ApplyDropout) {
  for (const double probability : {0.0, 0.4}) {
    for (const std::int64_t columns : {1, 3, 17, 65, 257, 1000}) {
      Promise promise = kExact;
      promise.rows_at_a_time = 7;
      expect_kernel(21, columns, promise, [&](Kernels& kernels, auto& w) {
        const Dropout dropout = dropout_of(w, 7, probability);
        kernels.apply_dropout(w.output("out"), w.random("x"), dropout);
        const TensorView in_place = w.update("in place");
        kernels.apply_dropout(in_place, in_place, dropout);
      });
    }
  }
}

// Of 8 rows, the second part lies in both sequences.
TEST(CpuElementwise, APartOfTheRowsDropsTheSameElements) {
  constexpr std::array<std::uint64_t, 2> kTwo{21, 22};
  Dropout dropout{.probability = 0.4, .seed = 1, .streams = kTwo, .sequence = 12, .columns_total = 17};
  const std::vector<float> ones(24 * 17, 1.0f);
  const ConstTensorView x = make_view(reinterpret_cast<const std::byte*>(ones.data()), DType::kF32, 24, 17);
  std::vector<float> whole(ones.size()), parts(ones.size());
  CpuKernels kernels(1);
  kernels.apply_dropout(make_view(reinterpret_cast<std::byte*>(whole.data()), DType::kF32, 24, 17), x, dropout);
  const TensorView out = make_view(reinterpret_cast<std::byte*>(parts.data()), DType::kF32, 24, 17);
  for (std::int64_t begin : {0, 8, 16}) {
    dropout.row_begin = begin;
    kernels.apply_dropout(row_range(out, begin, 8), row_range(x, begin, 8), dropout);
  }
  EXPECT_EQ(parts, whole);
  for (std::int64_t begin : {-8, 1, 24}) {
    dropout.row_begin = begin;
    EXPECT_THROW(kernels.apply_dropout(row_range(out, 0, 8), row_range(x, 0, 8), dropout), InternalError);
  }
}

TEST(CpuElementwise, ADroppedElementIsZeroWhateverItWas) {
  constexpr std::array<std::uint64_t, 1> kStream{1};
  const Dropout dropout{.probability = 0.5, .seed = 1, .streams = kStream, .sequence = 1, .columns_total = 64};
  std::vector<float> x(64, std::numeric_limits<float>::infinity());
  const TensorView view = make_view(reinterpret_cast<std::byte*>(x.data()), DType::kF32, 1, 64);
  CpuKernels(1).apply_dropout(view, view, dropout);
  int dropped = 0;
  for (const float value : x) {
    EXPECT_FALSE(std::isnan(value));
    dropped += value == 0.0f ? 1 : 0;
  }
  EXPECT_GT(dropped, 10);
  EXPECT_LT(dropped, 54);
}

class CpuActivation : public testing::TestWithParam<ActivationType> {};

// The tanh in GELU cancels near -1: a few units of the last place of 1, not of the result.
constexpr Promise kActivation{.tolerance = 2e-6, .rows_at_a_time = 1, .columns_alone = true};

TEST_P(CpuActivation, Plain) {
  expect_kernel_on_shapes(kActivation, [](Kernels& kernels, auto& w) {
    kernels.activation_forward(GetParam(), {}, w.random("up"), w.output("out"));
    kernels.activation_backward(GetParam(), w.random("d_out"), {}, w.random("up"), {}, w.output("d_up"));
    const TensorView in_place = w.update("d_out, then d_up");
    kernels.activation_backward(GetParam(), in_place, {}, w.random("up"), {}, in_place);
  });
}

TEST_P(CpuActivation, Gated) {
  Promise promise = kActivation;
  promise.tolerance = 4e-6;
  expect_kernel_on_shapes(promise, [](Kernels& kernels, auto& w) {
    const auto gate = w.random("gate");
    const auto up = w.random("up");
    kernels.activation_forward(GetParam(), gate, up, w.output("out"));
    kernels.activation_backward(GetParam(), w.random("d_out"), gate, up, w.output("d_gate"), w.output("d_up"));
    const TensorView in_place = w.update("d_out, then d_up");
    kernels.activation_backward(GetParam(), in_place, gate, up, w.output("another d_gate"), in_place);
  });
}

// Far from zero the exponentials overflow or vanish; the functions do not.
TEST_P(CpuActivation, LargeArguments) {
  const std::vector<float> at{-1e30f, -1e4f, -100.0f, -89.0f, -20.0f, -0.0f, 0.0f, 20.0f, 89.0f, 100.0f, 1e4f, 1e9f};
  std::vector<float> out(at.size()), expected(at.size()), ones(at.size(), 1.0f), slope(at.size()), steep(at.size());
  std::vector<float> x = at;
  CpuKernels cpu(1);
  ReferenceKernels reference;
  cpu.activation_forward(GetParam(), {}, row_of(x), row_of(out));
  reference.activation_forward(GetParam(), {}, row_of(x), row_of(expected));
  for (std::size_t i = 0; i < at.size(); ++i) {
    EXPECT_NEAR(out[i], expected[i], 1e-6 * std::max(1.0f, std::abs(at[i]))) << at[i];
  }
  x.resize(8);  // beyond 89 the reference's slope may be infinity times zero
  x[0] = -60.0f;
  out.resize(8), ones.resize(8), slope.resize(8), steep.resize(8);
  cpu.activation_backward(GetParam(), row_of(ones), {}, row_of(x), {}, row_of(slope));
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_TRUE(std::isfinite(slope[i])) << x[i];
}

INSTANTIATE_TEST_SUITE_P(Types, CpuActivation,
                         testing::Values(ActivationType::kGeluTanh, ActivationType::kSilu, ActivationType::kRelu));

TEST(CpuElementwise, FillCopyAddScale) {
  expect_kernel_on_shapes(kExact, [](Kernels& kernels, auto& w) {
    kernels.fill(w.output("filled"), 0.1);
    kernels.copy(w.random("x"), w.output("copied"));
    kernels.add(w.update("y"), w.random("x"));
    kernels.scale(w.update("scaled"), std::sqrt(1152.0));
  });
}

}  // namespace
}  // namespace trireme::kernels
