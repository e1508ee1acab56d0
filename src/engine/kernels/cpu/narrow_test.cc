// The rule of types (kernels.h): a call on narrow operands has the bits of the same call on their F32 values, rounded
// once at its end; and the reference means the same by it.

#include <cstring>
#include <functional>
#include <limits>
#include <list>
#include <map>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/attention_tile.h"
#include "base/narrow_scratch.h"
#include "base/random.h"
#include "engine/kernels/cpu/cpu_kernels.h"
#include "engine/kernels/cpu/simd.h"
#include "engine/kernels/reference/reference_kernels.h"

namespace trireme::kernels {
namespace {

// The tensors of one run by name: narrow, or the same values in F32.
class Tensors {
 public:
  // Which of the narrow ones are so: bit i of the mask, in the order in which they are made.
  Tensors(DType dtype, std::uint32_t mask, bool widened) : dtype_(dtype), mask_(mask), widened_(widened) {}

  ConstTensorView in(const std::string& name, std::int64_t rows, std::int64_t columns) {
    return make(name, rows, columns, is_next_narrow(), false);
  }
  TensorView out(const std::string& name, std::int64_t rows, std::int64_t columns) {
    return make(name, rows, columns, is_next_narrow(), true);
  }
  // Always F32.
  TensorView wide(const std::string& name, std::int64_t rows, std::int64_t columns, bool result = false) {
    return make(name, rows, columns, false, result);
  }
  static constexpr std::int64_t kPadding = 3;

  // What the results hold, each in the type that it has, or would have.
  std::map<std::string, std::vector<std::byte>> results() const {
    std::map<std::string, std::vector<std::byte>> all;
    for (const Piece& piece : pieces_) {
      if (!piece.result) continue;
      std::vector<float> values(static_cast<std::size_t>(piece.view.elements()));
      for (std::int64_t row = 0; row < piece.view.rows; ++row) {
        const std::int64_t element = dtype_size(piece.view.dtype);
        convert_to_f32(piece.view.dtype,
                       std::span<const std::byte>(piece.view.data + row * piece.view.row_stride * element,
                                                  static_cast<std::size_t>(piece.view.columns * element)),
                       std::span(values).subspan(static_cast<std::size_t>(row * piece.view.columns),
                                                 static_cast<std::size_t>(piece.view.columns)));
      }
      std::vector<std::byte>& raw = all[piece.name];
      raw.resize(values.size() * static_cast<std::size_t>(dtype_size(piece.meant)));
      convert_from_f32(piece.meant, values, raw);
    }
    return all;
  }

 private:
  struct Piece {
    std::string name;
    std::vector<std::byte> memory;
    TensorView view;
    DType meant = DType::kF32;
    bool result = false;
  };
  bool is_next_narrow() { return (mask_ >> count_++ & 1U) != 0; }

  TensorView make(const std::string& name, std::int64_t rows, std::int64_t columns, bool narrow, bool result) {
    Piece& piece = pieces_.emplace_back();
    piece.name = name;
    piece.meant = narrow ? dtype_ : DType::kF32;
    piece.result = result;
    const DType dtype = widened_ ? DType::kF32 : piece.meant;
    const std::int64_t stride = columns + kPadding, element = dtype_size(dtype);
    piece.memory.assign(static_cast<std::size_t>(rows * stride * element), std::byte{0xff});  // NaN
    piece.view = make_view(piece.memory.data(), dtype, rows, columns);
    piece.view.row_stride = stride;
    const RandomKey key{3, stream_of("narrow", name)};
    for (std::int64_t row = 0; row < rows; ++row) {
      std::vector<float> values;
      for (std::int64_t j = 0; j < columns; ++j) {
        values.push_back(static_cast<float>(random_normal(key, static_cast<std::uint64_t>(row * columns + j))));
      }
      std::vector<std::byte> rounded(values.size() * static_cast<std::size_t>(dtype_size(piece.meant)));
      convert_from_f32(piece.meant, values, rounded);
      convert_to_f32(piece.meant, rounded, values);
      convert_from_f32(
          dtype, values,
          std::span(piece.view.data + row * stride * element, static_cast<std::size_t>(columns * element)));
    }
    return piece.view;
  }

  DType dtype_;
  std::uint32_t mask_;
  bool widened_;
  int count_ = 0;
  std::list<Piece> pieces_;
};

using Call = std::function<void(Kernels&, Tensors&)>;

class Narrow : public testing::TestWithParam<DType> {
 protected:
  Narrow() : scratch_(static_cast<std::size_t>(narrow_scratch_elements(2)), std::numeric_limits<float>::quiet_NaN()) {
    const TensorView scratch =
        make_view(reinterpret_cast<std::byte*>(scratch_.data()), DType::kF32, 1, narrow_scratch_elements(2));
    one_.use_scratch(scratch);
    two_.use_scratch(scratch);
  }

  std::map<std::string, std::vector<std::byte>> run_with(Kernels& kernels, std::uint32_t mask, bool widened,
                                                         const Call& run) {
    Tensors tensors(GetParam(), mask, widened);
    run(kernels, tensors);
    return tensors.results();
  }

  // Of all operands narrow, of every other one, and of one alone.
  void expect_rounded(const Call& run) {
    for (const std::uint32_t mask : {0xffffffffU, 0x55555555U, 0xaaaaaaaaU, 1U, 2U, 4U}) {
      SCOPED_TRACE(fmt::format("types {:x}", mask));
      const auto narrow = run_with(one_, mask, false, run);
      ASSERT_FALSE(narrow.empty());
      EXPECT_EQ(narrow, run_with(one_, mask, true, run));
      EXPECT_EQ(narrow, run_with(two_, mask, false, run));
      EXPECT_EQ(run_with(reference_, mask, false, run), run_with(reference_, mask, true, run)) << "reference";
    }
  }

  // Where the products of BF16 have an order of their own: near the reference, the same on two threads.
  void expect_near_reference(const Call& run) {
    const auto narrow = run_with(one_, 0xffffffffU, false, run);
    EXPECT_EQ(narrow, run_with(two_, 0xffffffffU, false, run));
    for (const auto& [name, expected] : run_with(reference_, 0xffffffffU, false, run)) {
      SCOPED_TRACE(name);
      const std::vector<float> want = floats_of(name, expected), have = floats_of(name, narrow.at(name));
      double error = 0, size = 0;
      for (std::size_t i = 0; i < want.size(); ++i) {
        ASSERT_TRUE(std::isfinite(have[i])) << i;
        error += std::pow(have[i] - want[i], 2);
        size += std::pow(want[i], 2);
      }
      EXPECT_LE(std::sqrt(error), 2e-3 * std::sqrt(size));  // a result in BF16 is within 2^-9 of what it rounds
    }
  }
  // log_sum_exp alone is F32 of what attention gives.
  std::vector<float> floats_of(const std::string& name, const std::vector<std::byte>& raw) {
    const DType dtype = name == "log_sum_exp" ? DType::kF32 : GetParam();
    std::vector<float> values(raw.size() / static_cast<std::size_t>(dtype_size(dtype)));
    convert_to_f32(dtype, raw, values);
    return values;
  }

  std::vector<float> scratch_;
  CpuKernels one_{1}, two_{2};
  ReferenceKernels reference_;
};

TEST_P(Narrow, ConversionsAreThoseOfTheBase) {
  std::vector<std::uint16_t> all(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  std::vector<float> wide(all.size()), expected(all.size());
  simd::widen(GetParam(), all.data(), wide.data(), std::ssize(all));
  convert_to_f32(GetParam(), std::as_bytes(std::span(all)), expected);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (std::isnan(expected[i])) {
      EXPECT_TRUE(std::isnan(wide[i])) << i;
    } else {
      EXPECT_EQ(std::bit_cast<std::uint32_t>(wide[i]), std::bit_cast<std::uint32_t>(expected[i])) << i;
    }
  }
  // Each number, its neighbours, and the middle between two, just above and just below it.
  std::vector<float> values;
  for (const std::uint32_t top : all) {
    for (const std::uint32_t low : {0x0000U, 0x0001U, 0x0fffU, 0x1000U, 0x1001U, 0x7fffU, 0x8000U, 0x8001U, 0xffffU}) {
      values.push_back(std::bit_cast<float>(top << 16U | low));
    }
  }
  std::vector<std::uint16_t> narrow(values.size()), rounded(values.size());
  simd::narrow(GetParam(), values.data(), narrow.data(), std::ssize(values));
  convert_from_f32(GetParam(), values, std::as_writable_bytes(std::span(rounded)));
  std::vector<float> back(values.size());
  convert_to_f32(GetParam(), std::as_bytes(std::span(narrow)), back);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i])) {
      EXPECT_TRUE(std::isnan(back[i])) << values[i];
    } else {
      ASSERT_EQ(narrow[i], rounded[i]) << fmt::format("{:a}", values[i]);
    }
  }
}

TEST_P(Narrow, Products) {
  for (const bool transpose_a : {false, true}) {
    for (const bool transpose_b : {false, true}) {
      for (const bool accumulate : {false, true}) {
        for (const auto& [m, n, k] :
             {std::tuple{1, 1, 1}, {33, 70, 300}, {17, 1030, 65}, {520, 40, 0}, {515, 3, 513}, {16, 33, 1029}}) {
          SCOPED_TRACE(fmt::format("{}{} {} x {} x {}{}", transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', m, n, k,
                                   accumulate ? ", accumulated" : ""));
          const Call run = [&](Kernels& kernels, Tensors& t) {
            kernels.gemm({.a = transpose_a ? t.in("a", k, m) : t.in("a", m, k),
                          .transpose_a = transpose_a,
                          .b = transpose_b ? t.in("b", n, k) : t.in("b", k, n),
                          .transpose_b = transpose_b,
                          .c = t.out("c", m, n),
                          .accumulate = accumulate});
          };
          // Products of BF16 have an order of their own, and are not those of F32, rounded.
          if (GetParam() != DType::kBF16) expect_rounded(run);
          for (const std::uint32_t mask : {1U, 2U, 4U, 7U}) {
            const auto expected = run_with(reference_, mask, false, run);
            EXPECT_EQ(run_with(one_, mask, false, run), expected) << mask;
            EXPECT_EQ(run_with(two_, mask, false, run), expected) << mask;
          }
        }
      }
    }
  }
}

TEST_P(Narrow, Elementwise) {
  const std::array<std::uint64_t, 2> streams{1, 2};
  for (const std::int64_t n : {1, 17, 300}) {
    for (const double probability : {0.0, 0.3}) {
      const Dropout dropout{
          .probability = probability, .seed = 1, .streams = streams, .sequence = 35, .columns_total = n};
      expect_rounded([&](Kernels& k, Tensors& t) { k.add_bias(t.out("x", 70, n), t.in("bias", 1, n)); });
      expect_rounded([&](Kernels& k, Tensors& t) {
        k.residual_add(t.out("out", 70, n), t.in("residual", 70, n), t.in("x", 70, n), t.in("bias", 1, n), dropout);
      });
      expect_rounded([&](Kernels& k, Tensors& t) { k.apply_dropout(t.out("out", 70, n), t.in("x", 70, n), dropout); });
    }
    for (const bool accumulate : {false, true}) {
      expect_rounded([&](Kernels& k, Tensors& t) { k.column_sum(t.in("x", 70, n), t.out("sum", 1, n), accumulate); });
    }
    expect_rounded([&](Kernels& k, Tensors& t) { k.fill(t.out("x", 5, n), 0.3); });
    expect_rounded([&](Kernels& k, Tensors& t) { k.copy(t.in("from", 5, n), t.out("to", 5, n)); });
    expect_rounded([&](Kernels& k, Tensors& t) { k.add(t.out("y", 5, n), t.in("x", 5, n)); });
    expect_rounded([&](Kernels& k, Tensors& t) { k.scale(t.out("x", 70, n), std::sqrt(1152.0)); });
  }
}

TEST_P(Narrow, InPlace) {
  expect_rounded([](Kernels& k, Tensors& t) {
    const TensorView x = t.out("x", 7, 33);
    k.residual_add(x, t.in("residual", 7, 33), x, {}, {});
  });
  expect_rounded([](Kernels& k, Tensors& t) {
    const TensorView x = t.out("x", 7, 33);
    k.residual_add(x, x, t.in("branch", 7, 33), {}, {});
  });
}

TEST_P(Narrow, Activations) {
  for (const ActivationType type : {ActivationType::kGeluTanh, ActivationType::kSilu, ActivationType::kRelu}) {
    expect_rounded(
        [&](Kernels& k, Tensors& t) { k.activation_forward(type, {}, t.in("up", 9, 40), t.out("out", 9, 40)); });
    expect_rounded([&](Kernels& k, Tensors& t) {
      k.activation_forward(type, t.in("gate", 9, 40), t.in("up", 9, 40), t.out("out", 9, 40));
    });
    expect_rounded([&](Kernels& k, Tensors& t) {
      const TensorView d = t.out("d", 9, 40);
      k.activation_backward(type, d, t.in("gate", 9, 40), t.in("up", 9, 40), t.out("d_gate", 9, 40), d);
    });
    expect_rounded([&](Kernels& k, Tensors& t) {
      k.activation_backward(type, t.in("d", 9, 40), {}, t.in("up", 9, 40), {}, t.out("d_up", 9, 40));
    });
  }
}

TEST_P(Narrow, Norms) {
  for (const NormType type : {NormType::kLayerNorm, NormType::kRmsNorm, NormType::kRmsNormOffset}) {
    const bool biased = type == NormType::kLayerNorm;
    for (const std::int64_t n : {1, 40, 300}) {
      expect_rounded([&](Kernels& k, Tensors& t) {
        k.norm_forward(type, t.in("x", 70, n), t.in("weight", 1, n), biased ? t.in("bias", 1, n) : ConstTensorView{},
                       1e-5, t.out("y", 70, n), t.wide("stats", 70, 2, true));
      });
      expect_rounded([&](Kernels& k, Tensors& t) {
        k.norm_backward_input(type, t.in("d_y", 70, n), t.in("x", 70, n), t.wide("stats", 70, 2), t.in("weight", 1, n),
                              t.in("addend", 70, n), t.out("d_x", 70, n));
      });
      for (const bool accumulate : {false, true}) {
        expect_rounded([&](Kernels& k, Tensors& t) {
          const TensorView d_bias = biased ? t.out("d_bias", 1, n) : TensorView{};
          k.norm_backward_weight(type, t.in("d_y", 70, n), t.in("x", 70, n), t.wide("stats", 70, 2),
                                 t.out("d_weight", 1, n), d_bias, accumulate);
        });
      }
    }
  }
}

TEST_P(Narrow, NormsOfRowsCutOverRanks) {
  for (const std::int64_t n : {1, 40, 300}) {
    expect_rounded([&](Kernels& k, Tensors& t) { k.row_square_sums(t.in("x", 70, n), t.wide("sums", 1, 70, true)); });
    expect_rounded([&](Kernels& k, Tensors& t) {
      k.norm_row_dots(t.in("d_y", 70, n), t.in("x", 70, n), t.wide("stats", 70, 2), t.in("weight", 1, n),
                      t.wide("dots", 1, 70, true));
    });
    expect_rounded([&](Kernels& k, Tensors& t) {
      k.norm_backward_input_of_dots(t.in("d_y", 70, n), t.in("x", 70, n), t.wide("stats", 70, 2), t.in("weight", 1, n),
                                    t.wide("dots", 1, 70), 2 * n, t.in("addend", 70, n), t.out("d_x", 70, n));
    });
  }
}

TEST_P(Narrow, Tables) {
  const std::vector<std::int32_t> ids{4, 1, 9, 4, 4, 0, 1, 20};
  for (const std::int64_t n : {1, 40, 200}) {
    expect_rounded(
        [&](Kernels& k, Tensors& t) { k.embedding_forward(ids, t.in("table", 6, n), 1, t.out("out", 8, n)); });
    for (const bool accumulate : {false, true}) {
      expect_rounded([&](Kernels& k, Tensors& t) {
        k.embedding_backward(ids, t.in("d_out", 8, n), 1, t.out("d_table", 6, n), accumulate);
      });
      expect_rounded([&](Kernels& k, Tensors& t) {
        k.position_backward(t.in("d_out", 8, n), 4, t.out("d_table", 6, n), accumulate);
      });
    }
    expect_rounded([&](Kernels& k, Tensors& t) { k.position_forward(t.in("table", 6, n), 4, t.out("out", 8, n)); });
  }
  for (const bool inverse : {false, true}) {
    expect_rounded(
        [&](Kernels& k, Tensors& t) { k.rotary(t.out("x", 8, 24), 3, 8, t.wide("table", 4, 8), 4, inverse); });
  }
}

// Attention of two key/value heads, forward or backward, whole or a head at a time, as tensor-parallel ranks have them.
struct AttentionCall {
  std::int64_t sequence, d;
  double dropout;
  bool backward, by_heads;
  std::int64_t window = 0;
  void operator()(Kernels& k, Tensors& t) const {
    const std::array<std::uint64_t, 2> streams{1, 2};
    const std::int64_t rows = 2 * sequence;
    const ConstTensorView q = t.in("q", rows, 4 * d), key = t.in("k", rows, 2 * d), v = t.in("v", rows, 2 * d);
    // The log of a sum of exponentials of a row: large enough for small probabilities.
    const TensorView log_sum_exp = t.wide("log_sum_exp", 8, sequence, !backward);
    if (backward) k.fill(log_sum_exp, 3.0);
    const std::int64_t elements =
        backward ? attention_backward_scratch(sequence, d) : attention_forward_scratch(sequence, d);
    TensorView scratch = t.wide("scratch", 1, 3 * elements);
    scratch.row_stride = scratch.columns;
    const TensorView out = t.out("out", rows, 4 * d);
    const ConstTensorView d_out = backward ? t.in("d_out", rows, 4 * d) : ConstTensorView{};
    const TensorView d_q = backward ? t.out("d_q", rows, 4 * d) : TensorView{};
    const TensorView d_k = backward ? t.out("d_k", rows, 2 * d) : TensorView{};
    const TensorView d_v = backward ? t.out("d_v", rows, 2 * d) : TensorView{};
    const std::int64_t count = by_heads ? 1 : 2;
    for (std::int64_t head = 0; head < 2; head += count) {
      const auto heads = [&](auto view) { return column_range(view, 2 * head * d, 2 * count * d); };
      const auto shared = [&](auto view) { return column_range(view, head * d, count * d); };
      std::vector<float> terms(static_cast<std::size_t>(4 * count * sequence), 3.0F);
      const TensorView lines = make_view(reinterpret_cast<std::byte*>(terms.data()), DType::kF32, 4 * count, sequence);
      const AttentionShape shape{.sequences = 2,
                                 .sequence = sequence,
                                 .heads = 2 * count,
                                 .kv_heads = count,
                                 .head_dim = d,
                                 .scale = 0.35,
                                 .window = window,
                                 .head_begin = 2 * head,
                                 .dropout = {.probability = dropout, .seed = 1, .streams = streams}};
      if (backward) {
        k.attention_backward({.shape = shape,
                              .q = heads(q),
                              .k = shared(key),
                              .v = shared(v),
                              .out = heads(out),
                              .log_sum_exp = lines,
                              .d_out = heads(d_out),
                              .d_q = heads(d_q),
                              .d_k = shared(d_k),
                              .d_v = shared(d_v),
                              .scratch = scratch});
      } else {
        k.attention_forward({.shape = shape,
                             .q = heads(q),
                             .k = shared(key),
                             .v = shared(v),
                             .out = heads(out),
                             .log_sum_exp = by_heads ? lines : log_sum_exp,
                             .scratch = scratch});
        for (std::int64_t i = 0; by_heads && i < 4; ++i) {  // two heads of each of two sequences
          k.copy(row_range(lines, i, 1), row_range(log_sum_exp, i / 2 * 4 + 2 * head + i % 2, 1));
        }
      }
    }
  }
};

TEST_P(Narrow, Attention) {
  for (const auto& [sequence, d] : {std::pair{1, 8}, {70, 8}, {131, 7}, {300, 33}}) {
    for (const double dropout : {0.0, 0.2}) {
      for (const bool backward : {false, true}) {
        SCOPED_TRACE(
            fmt::format("{} tokens, {} columns, dropout {}{}", sequence, d, dropout, backward ? ", backward" : ""));
        const AttentionCall whole{sequence, d, dropout, backward, false},
            by_heads{sequence, d, dropout, backward, true};
        GetParam() == DType::kBF16 ? expect_near_reference(whole) : expect_rounded(whole);
        EXPECT_EQ(run_with(one_, 0xffffffffU, false, by_heads), run_with(one_, 0xffffffffU, false, whole));
      }
    }
  }
}

// Products of F16 are those of F32: a few shapes.
TEST_P(Narrow, AttentionInAWindow) {
  CpuKernels three(3);
  const bool pairs = GetParam() == DType::kBF16;
  for (const std::int64_t sequence : {1, 5, 67, 130, 300}) {
    for (const std::int64_t window : {1, 2, 7, 64, 65, 131}) {
      if (!pairs && (sequence != 67 || window % 2 == 0)) continue;
      for (const bool backward : {false, true}) {
        SCOPED_TRACE(fmt::format("{} tokens, window {}{}", sequence, window, backward ? ", backward" : ""));
        const AttentionCall call{sequence, 9, window % 2 == 0 ? 0.2 : 0.0, backward, false, window};
        pairs ? expect_near_reference(call) : expect_rounded(call);
        AttentionCall by_heads = call, wide = call, none = call;
        by_heads.by_heads = true;
        wide.window = sequence + window - 1;
        none.window = 0;
        const auto result = run_with(one_, 0xffffffffU, false, call);
        EXPECT_EQ(run_with(three, 0xffffffffU, false, call), result);
        EXPECT_EQ(run_with(one_, 0xffffffffU, false, by_heads), result);
        EXPECT_EQ(run_with(one_, 0xffffffffU, false, wide), run_with(one_, 0xffffffffU, false, none));
      }
    }
  }
}

TEST_P(Narrow, Optimizer) {
  const AdamW step{.learning_rate = 0.1, .weight_decay = 0.1, .bias_correction1 = 0.1, .bias_correction2 = 0.05};
  for (const std::int64_t n : {1, 1000, 40000}) {
    expect_rounded([&](Kernels& k, Tensors& t) {
      const TensorView first = t.wide("first", 1, n, true), second = t.wide("second", 1, n, true);
      k.fill(second, 0.5);
      k.adamw(step, t.wide("weights", 1, n, true), t.in("gradients", 1, n), first, second, t.out("rounded", 1, n));
    });
    expect_rounded([&](Kernels& k, Tensors& t) {
      std::vector<double> blocks(static_cast<std::size_t>((n + 255) / 256));
      k.square_blocks(t.in("x", 1, n),
                      make_view(reinterpret_cast<std::byte*>(blocks.data()), DType::kF64, 1, std::ssize(blocks)));
      TensorView out = t.wide("blocks", 1, 2 * std::ssize(blocks), true);
      std::memcpy(out.data, blocks.data(), blocks.size() * sizeof(double));
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Narrow, testing::Values(DType::kBF16, DType::kF16),
                         [](const auto& type) { return std::string(dtype_name(type.param)); });

}  // namespace
}  // namespace trireme::kernels
