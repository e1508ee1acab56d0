#include <array>
#include <limits>
#include <vector>

#include "base/attention_tile.h"
#include "engine/kernels/cpu/test_workspace.h"

namespace trireme::kernels {
namespace {

struct Case {
  std::int64_t sequence;
  std::int64_t heads;
  std::int64_t kv_heads;
  std::int64_t head_dim;
  double dropout = 0.0;
  std::int64_t window = 0;
};

constexpr std::array<std::uint64_t, 3> kStreams{21, 22, 23};

// Forward, then backward on its results. Part of the sequences (rows), or of the heads of one sequence (columns).
struct Attention {
  Case of;

  template <class Work>
  void operator()(Kernels& kernels, Work& w) const {
    const std::int64_t group = of.heads / of.kv_heads, d = of.head_dim;
    const std::int64_t first = w.rows.begin / of.sequence, sequences = w.rows.count / of.sequence;
    const std::int64_t head = w.columns.begin / d, heads = w.columns.count / d;
    const Extent kv{of.kv_heads * d, head / group * d, heads / group * d};
    const Extent lines{w.rows.total / of.sequence * of.heads, first * of.heads + head, sequences * heads};
    const AttentionShape shape{.sequences = sequences,
                               .sequence = of.sequence,
                               .heads = heads,
                               .kv_heads = heads / group,
                               .head_dim = d,
                               .scale = 1.0 / std::sqrt(static_cast<double>(d)),
                               .window = of.window,
                               .head_begin = 2 + head,
                               .dropout = {.probability = of.dropout,
                                           .seed = 3,
                                           .streams = std::span(kStreams).subspan(
                                               static_cast<std::size_t>(first), static_cast<std::size_t>(sequences))}};
    const auto q = w.random("q"), k = w.random("k", w.rows, kv), v = w.random("v", w.rows, kv);
    const TensorView out = w.output("out"), log_sum_exp = w.output("log_sum_exp", lines, whole(of.sequence));
    kernels.attention_forward({.shape = shape,
                               .q = q,
                               .k = k,
                               .v = v,
                               .out = out,
                               .log_sum_exp = log_sum_exp,
                               .scratch = w.scratch(kernels.threads() * attention_forward_scratch(of.sequence, d))});
    kernels.attention_backward({.shape = shape,
                                .q = q,
                                .k = k,
                                .v = v,
                                .out = out,
                                .log_sum_exp = log_sum_exp,
                                .d_out = w.random("d_out"),
                                .d_q = w.output("d_q"),
                                .d_k = w.output("d_k", w.rows, kv),
                                .d_v = w.output("d_v", w.rows, kv),
                                .scratch = w.scratch(kernels.threads() * attention_backward_scratch(of.sequence, d))});
  }
};

class CpuAttention : public testing::TestWithParam<Case> {};

TEST_P(CpuAttention, MatchesTheReference) {
  const Case& of = GetParam();
  expect_kernel(3 * of.sequence, of.heads * of.head_dim, {.tolerance = 1e-5, .rows_at_a_time = of.sequence},
                Attention{of});
}

// Tensor-parallel ranks hold some heads, of the same bits.
TEST_P(CpuAttention, AGroupOfHeadsAlone) {
  const Case& of = GetParam();
  Inputs inputs;
  CpuKernels kernels(2);
  const Place all{whole(of.sequence), whole(of.heads * of.head_dim)};
  const auto result = run_at<float>(all, inputs, kernels, Attention{of});
  const std::int64_t width = of.heads / of.kv_heads * of.head_dim;
  for (std::int64_t begin = 0; begin < all.columns.count; begin += width) {
    SCOPED_TRACE(begin);
    const Place part{.rows = all.rows, .columns = {all.columns.count, begin, width}, .offset = 3, .padding = 5};
    expect_same_bits(run_at<float>(part, inputs, kernels, Attention{of}), result);
  }
}

std::string name_of(const testing::TestParamInfo<Case>& test) {
  const Case& of = test.param;
  return fmt::format("S{}H{}Kv{}D{}{}{}", of.sequence, of.heads, of.kv_heads, of.head_dim,
                     of.dropout > 0 ? "Dropout" : "", of.window > 0 ? fmt::format("Window{}", of.window) : "");
}

INSTANTIATE_TEST_SUITE_P(Shapes, CpuAttention,
                         testing::Values(Case{1, 2, 2, 3}, Case{5, 2, 2, 3}, Case{5, 4, 2, 16}, Case{5, 3, 1, 64, 0.3},
                                         Case{64, 2, 2, 16}, Case{64, 4, 1, 7, 0.2}, Case{65, 2, 2, 64},
                                         Case{65, 4, 2, 3, 0.3}, Case{130, 2, 2, 17}, Case{130, 4, 2, 32, 0.1},
                                         Case{300, 2, 1, 16}),
                         name_of);

// Each window on each length, with heads of all kinds; two that begin and end in different blocks of a contraction.
std::vector<Case> windowed() {
  constexpr Case kHeads[] = {{0, 2, 2, 16}, {0, 4, 2, 7, 0.3}, {0, 3, 1, 33}, {0, 2, 2, 3, 0.2}, {0, 4, 1, 17}};
  std::vector<Case> cases{{400, 2, 1, 16, 0.0, 130}, {330, 1, 1, 5, 0.1, 290}};
  for (const std::int64_t sequence : {1, 5, 67, 130}) {
    for (const std::int64_t window : {1, 2, 7, 64, 65, 1000}) {
      cases.push_back(kHeads[cases.size() % std::size(kHeads)]);
      cases.back().sequence = sequence;
      cases.back().window = window;
    }
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Windows, CpuAttention, testing::ValuesIn(windowed()), name_of);

TEST(CpuAttentionWindow, OfTheSequenceAndMoreHasTheBitsOfNone) {
  CpuKernels kernels(2);
  for (const std::int64_t sequence : {1, 5, 67, 130, 300}) {
    for (const double dropout : {0.0, 0.2}) {
      Case of{sequence, 4, 2, 16, dropout};
      Inputs inputs;
      const Place all{whole(3 * sequence), whole(of.heads * of.head_dim)};
      const auto result = run_at<float>(all, inputs, kernels, Attention{of});
      for (const std::int64_t window : {sequence, sequence + 1, std::numeric_limits<std::int64_t>::max()}) {
        SCOPED_TRACE(fmt::format("{} tokens, window {}", sequence, window));
        of.window = window;
        expect_same_bits(run_at<float>(all, inputs, kernels, Attention{of}), result);
      }
    }
  }
}

// Attention of one head whose first keys and values are `first`.
struct FirstKeys {
  float first;
  std::int64_t window;
  static constexpr std::int64_t kSequence = 300, kDim = 8, kFirst = 25;

  template <class Work>
  void operator()(Kernels& kernels, Work& w) const {
    const AttentionShape shape{.sequences = 1,
                               .sequence = kSequence,
                               .heads = 1,
                               .kv_heads = 1,
                               .head_dim = kDim,
                               .window = window,
                               .dropout = {}};
    const auto q = w.random("q"), d_out = w.random("d_out");
    const TensorView k = w.update("k"), v = w.update("v"), out = w.output("out");
    const TensorView log_sum_exp = w.output("log_sum_exp", whole(1), whole(kSequence));
    for (const TensorView& view : {k, v}) {
      for (std::int64_t i = 0; i < kFirst; ++i)
        std::fill_n(reinterpret_cast<float*>(view.data) + i * kDim, kDim, first);
    }
    const TensorView scratch = w.scratch(attention_backward_scratch(kSequence, kDim));
    const TensorView d_q = w.output("d_q"), d_k = w.output("d_k"), d_v = w.output("d_v");
    kernels.attention_forward({shape, q, k, v, out, log_sum_exp, scratch});
    kernels.attention_backward({shape, q, k, v, out, log_sum_exp, d_out, d_q, d_k, d_v, scratch});
  }
};

// Keys of NaN, which would spoil what they are multiplied by, were their tile visited by later blocks.
TEST(CpuAttentionWindow, TilesOutsideAreNotVisited) {
  Inputs inputs;
  CpuKernels kernels(1);
  const Place all{whole(FirstKeys::kSequence), whole(FirstKeys::kDim)};
  const auto run = [&](float first) { return run_at<float>(all, inputs, kernels, FirstKeys{first, 33}); };
  const auto numbers = run(1.0f), spoiled = run(std::numeric_limits<float>::quiet_NaN());
  for (std::size_t n = 0; n < numbers.size(); ++n) {
    if (numbers[n].name != "out" && numbers[n].name != "d_q") continue;
    EXPECT_TRUE(std::isnan(spoiled[n].values.front())) << numbers[n].name;
    Output<float> later = spoiled[n];
    later.rows = {FirstKeys::kSequence, kAttentionRows, FirstKeys::kSequence - kAttentionRows};
    later.values.erase(later.values.begin(), later.values.begin() + kAttentionRows * FirstKeys::kDim);
    expect_same_bits({later}, {numbers[n]});
  }
}

// Scores of +-1e4 and more: probabilities of 0 and 1, which still add up to one.
TEST(CpuAttentionLimits, LargeScores) {
  constexpr std::int64_t kSequence = 70, kDim = 16;
  const auto size = static_cast<std::size_t>(kSequence * kDim);
  std::vector<float> q(size), v(size, 1.0f), out(size), d_q(size), d_k(size), d_v(size);
  std::vector<float> log_sum_exp(kSequence);
  std::vector<float> scratch(static_cast<std::size_t>(attention_backward_scratch(kSequence, kDim)));
  for (std::size_t i = 0; i < size; ++i) q[i] = 100.0f * static_cast<float>(random_normal({1, 1}, i));
  const auto matrix = [](std::vector<float>& values) {
    return make_view(reinterpret_cast<std::byte*>(values.data()), DType::kF32, kSequence, kDim);
  };
  const AttentionShape shape{
      .sequences = 1, .sequence = kSequence, .heads = 1, .kv_heads = 1, .head_dim = kDim, .scale = 0.25, .dropout = {}};
  CpuKernels kernels(1);
  kernels.attention_forward({.shape = shape,
                             .q = matrix(q),
                             .k = matrix(q),
                             .v = matrix(v),
                             .out = matrix(out),
                             .log_sum_exp = row_of(log_sum_exp),
                             .scratch = row_of(scratch)});
  for (const float value : out) EXPECT_NEAR(value, 1.0f, 1e-5f);
  for (const float value : log_sum_exp) EXPECT_GT(value, 5e3f);
  kernels.attention_backward({.shape = shape,
                              .q = matrix(q),
                              .k = matrix(q),
                              .v = matrix(v),
                              .out = matrix(out),
                              .log_sum_exp = row_of(log_sum_exp),
                              .d_out = matrix(v),
                              .d_q = matrix(d_q),
                              .d_k = matrix(d_k),
                              .d_v = matrix(d_v),
                              .scratch = row_of(scratch)});
  for (std::size_t i = 0; i < size; ++i) {
    EXPECT_TRUE(std::isfinite(d_q[i]) && std::isfinite(d_k[i]) && std::isfinite(d_v[i]));
  }
}

}  // namespace
}  // namespace trireme::kernels
