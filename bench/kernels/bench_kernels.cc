// Speed of the CPU kernels, as tables on stdout.
//   bench_kernels [gemm|attention|memory] [rounds]
// Without a name: all three. Every figure is the median of `rounds` (7); variants that are compared take turns, so that
// a busy machine slows all of them. One thread's figures are of its own time; two threads' are of use on an idle
// machine only. Flops count a multiply-add as two, bytes what a kernel must read and write once.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <dnnl.h>
#include <fmt/core.h>
#include <omp.h>

#include "base/attention_tile.h"
#include "base/random.h"
#include "engine/kernels/cpu/cpu_kernels.h"
#include "engine/kernels/cpu/simd.h"

namespace trireme::kernels {
namespace {

struct Work {
  int threads;
  std::function<void()> run;
};

// The thread's own time where there is one thread, so that whatever else runs is not counted; else time on the wall.
double now(int threads) {
  timespec time{};
  clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Seconds of one call of each, medians of `rounds`, after one call to warm up.
std::vector<double> measure(const std::vector<Work>& works, int rounds) {
  std::vector<std::vector<double>> times(works.size());
  for (int round = -1; round < rounds; ++round) {
    for (std::size_t i = 0; i < works.size(); ++i) {
      const double begin = now(works[i].threads);
      works[i].run();
      const double took = now(works[i].threads) - begin;
      if (round >= 0) times[i].push_back(took);
    }
  }
  std::vector<double> medians;
  for (std::vector<double>& of_one : times) {
    std::sort(of_one.begin(), of_one.end());
    medians.push_back(of_one[of_one.size() / 2]);
  }
  return medians;
}

struct Tensor {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<float> values;

  Tensor(std::int64_t r, std::int64_t c) : rows(r), columns(c), values(static_cast<std::size_t>(r * c)) {
    // Numbers in [-1, 1) that differ; cheap, since some tensors are large.
    std::uint32_t state = 1;
    for (float& value : values) {
      state = state * 1664525u + 1013904223u;
      value = static_cast<float>(static_cast<std::int32_t>(state)) * 0x1p-31f;
    }
  }
  TensorView view() { return make_view(reinterpret_cast<std::byte*>(values.data()), DType::kF32, rows, columns); }
};

// ---- products

struct Shape {
  std::string_view what;
  bool transpose_a;
  bool transpose_b;
  std::int64_t m, n, k;
  bool accumulate;
};

// The library's product, the contraction cut into blocks of `block`.
void product(const Shape& shape, std::int64_t block, const float* a, const float* b, float* c) {
  const std::int64_t a_stride = shape.transpose_a ? shape.m : shape.k;
  const std::int64_t b_stride = shape.transpose_b ? shape.k : shape.n;
  for (std::int64_t begin = 0; begin < shape.k; begin += block) {
    const std::int64_t k = std::min(block, shape.k - begin);
    dnnl_sgemm(shape.transpose_a ? 'T' : 'N', shape.transpose_b ? 'T' : 'N', shape.m, shape.n, k, 1.0f,
               a + (shape.transpose_a ? begin * a_stride : begin), a_stride,
               b + (shape.transpose_b ? begin : begin * b_stride), b_stride,
               shape.accumulate || begin > 0 ? 1.0f : 0.0f, c, shape.n);
  }
}

void bench_shape(const Shape& shape, int threads, int rounds) {
  Tensor a(shape.transpose_a ? shape.k : shape.m, shape.transpose_a ? shape.m : shape.k);
  Tensor b(shape.transpose_b ? shape.n : shape.k, shape.transpose_b ? shape.k : shape.n);
  Tensor c(shape.m, shape.n);
  CpuKernels kernels(threads);
  std::vector<Work> works;
  for (const std::int64_t block : {shape.k, std::int64_t{256}, std::int64_t{384}}) {
    works.push_back(
        {threads, [&, block] { product(shape, block, a.values.data(), b.values.data(), c.values.data()); }});
  }
  works.push_back({threads, [&] {
                     kernels.gemm({.a = a.view(),
                                   .transpose_a = shape.transpose_a,
                                   .b = b.view(),
                                   .transpose_b = shape.transpose_b,
                                   .c = c.view(),
                                   .accumulate = shape.accumulate});
                   }});
  omp_set_num_threads(threads);
  const std::vector<double> seconds = measure(works, rounds);
  const double flops = 2e-9 * static_cast<double>(shape.m * shape.n * shape.k);
  fmt::print("| {} {}{} | {} x {} x {} | {} | {:.0f} | {:.0f} | {:.0f} | {:.2f} | {:.2f} | {:.0f} |\n", shape.what,
             shape.transpose_a ? 'T' : 'N', shape.transpose_b ? 'T' : 'N', shape.m, shape.n, shape.k, threads,
             flops / seconds[0], flops / seconds[1], flops / seconds[2], seconds[1] / seconds[0],
             seconds[2] / seconds[0], flops / seconds[3]);
}

void bench_gemm(int rounds) {
  fmt::print("\nProducts, GF/s. Times of blocks of 256 and 384 are relative to the unblocked library call.\n\n");
  fmt::print("| product | M x N x K | threads | unblocked | 256 | 384 | time 256 | time 384 | Kernels::gemm |\n");
  fmt::print("|---|---|---|---|---|---|---|---|---|\n");
  const Shape shapes[] = {
      {"forward", false, false, 1024, 768, 768, false},  {"forward", false, true, 1024, 768, 768, false},
      {"forward", false, false, 1024, 3072, 768, false}, {"forward", false, true, 1024, 3072, 768, false},
      {"forward", false, false, 1024, 768, 3072, false}, {"forward", false, true, 1024, 768, 3072, false},
      {"logits", false, false, 256, 50257, 768, false},  {"logits", false, true, 256, 50257, 768, false},
      {"d_weight", true, false, 768, 3072, 1024, true},  {"d_weight", true, false, 768, 3072, 2048, true},
      {"d_weight", true, false, 768, 3072, 4096, true}};
  for (const int threads : {1, 2}) {
    for (const Shape& shape : shapes) bench_shape(shape, threads, rounds);
  }
}

// ---- attention

void bench_attention_case(int threads, double probability, int rounds) {
  constexpr std::int64_t kSequences = 4, kSequence = 512, kHeads = 12, kHeadDim = 64;
  constexpr std::int64_t kTokens = kSequences * kSequence, kWidth = kHeads * kHeadDim;
  const std::vector<std::uint64_t> streams{1, 2, 3, 4};
  const AttentionShape shape{.sequences = kSequences,
                             .sequence = kSequence,
                             .heads = kHeads,
                             .kv_heads = kHeads,
                             .head_dim = kHeadDim,
                             .scale = 0.125,
                             .dropout = {.probability = probability, .seed = 1, .streams = streams}};
  CpuKernels kernels(threads);
  Tensor qkv(kTokens, 3 * kWidth), d_qkv(kTokens, 3 * kWidth), out(kTokens, kWidth), d_out(kTokens, kWidth);
  Tensor log_sum_exp(kSequences * kHeads, kSequence);
  Tensor scratch(1, threads * attention_backward_scratch(kSequence, kHeadDim));
  const auto part = [&](Tensor& fused, std::int64_t i) { return column_range(fused.view(), i * kWidth, kWidth); };
  const Work forward{threads, [&] {
                       kernels.attention_forward({.shape = shape,
                                                  .q = part(qkv, 0),
                                                  .k = part(qkv, 1),
                                                  .v = part(qkv, 2),
                                                  .out = out.view(),
                                                  .log_sum_exp = log_sum_exp.view(),
                                                  .scratch = scratch.view()});
                     }};
  const Work backward{threads, [&] {
                        kernels.attention_backward({.shape = shape,
                                                    .q = part(qkv, 0),
                                                    .k = part(qkv, 1),
                                                    .v = part(qkv, 2),
                                                    .out = out.view(),
                                                    .log_sum_exp = log_sum_exp.view(),
                                                    .d_out = d_out.view(),
                                                    .d_q = part(d_qkv, 0),
                                                    .d_k = part(d_qkv, 1),
                                                    .d_v = part(d_qkv, 2),
                                                    .scratch = scratch.view()});
                      }};
  const std::vector<double> seconds = measure({forward, backward}, rounds);
  // Two products forward and five backward, of the scores that the causal mask keeps.
  const double pair = 2e-9 * kSequences * kHeads * kHeadDim * kSequence * (kSequence + 1) / 2;
  fmt::print("| {} | {} | {:.1f} | {:.0f} | {:.1f} | {:.0f} |\n", threads, probability, seconds[0] * 1e3,
             2 * pair / seconds[0], seconds[1] * 1e3, 5 * pair / seconds[1]);
}

void bench_attention(int rounds) {
  fmt::print("\nAttention, 4 sequences of 512, 12 heads of 64; flops below the diagonal only.\n\n");
  fmt::print("| threads | dropout | forward ms | GF/s | backward ms | GF/s |\n|---|---|---|---|---|---|\n");
  for (const double probability : {0.0, 0.1}) {
    for (const int threads : {1, 2}) bench_attention_case(threads, probability, rounds);
  }
}

// ---- bound by memory

struct MemoryCase {
  std::string name;
  double bytes;                          // read and written
  std::function<void(CpuKernels&)> run;  // on 1 and 2 threads
};

void bench_memory_cases(const std::vector<MemoryCase>& cases, int rounds) {
  CpuKernels one(1), two(2);
  for (const MemoryCase& of : cases) {
    const std::vector<double> seconds = measure({{1, [&] { of.run(one); }}, {2, [&] { of.run(two); }}}, rounds);
    fmt::print("| {} | {:.1f} | {:.1f} | {:.1f} |\n", of.name, of.bytes / 1e6, of.bytes * 1e-9 / seconds[0],
               of.bytes * 1e-9 / seconds[1]);
  }
}

void bench_norms(int rounds) {
  constexpr std::int64_t kRows = 16384, kColumns = 768;
  constexpr double kBytes = 4.0 * kRows * kColumns;
  Tensor x(kRows, kColumns), y(kRows, kColumns), d_y(kRows, kColumns), stats(kRows, 2);
  Tensor weight(1, kColumns), bias(1, kColumns), d_weight(1, kColumns), d_bias(1, kColumns);
  const std::vector<std::uint64_t> streams(kRows / 512, 1);
  const Dropout dropout{.probability = 0.1, .seed = 1, .streams = streams, .sequence = 512, .columns_total = kColumns};
  const auto norm = NormType::kLayerNorm;
  bench_memory_cases(
      {{"copy", 2 * kBytes, [&](CpuKernels& k) { k.copy(x.view(), y.view()); }},
       {"residual_add, bias", 3 * kBytes,
        [&](CpuKernels& k) { k.residual_add(y.view(), d_y.view(), x.view(), bias.view(), {}); }},
       {"residual_add, bias, dropout", 3 * kBytes,
        [&](CpuKernels& k) { k.residual_add(y.view(), d_y.view(), x.view(), bias.view(), dropout); }},
       {"column_sum", kBytes, [&](CpuKernels& k) { k.column_sum(x.view(), d_bias.view(), false); }},
       {"norm_forward", 2 * kBytes,
        [&](CpuKernels& k) {
          k.norm_forward(norm, x.view(), weight.view(), bias.view(), 1e-5, y.view(), stats.view());
        }},
       {"norm_apply", 2 * kBytes,
        [&](CpuKernels& k) { k.norm_apply(norm, x.view(), stats.view(), weight.view(), bias.view(), y.view()); }},
       {"norm_backward_input", 4 * kBytes,
        [&](CpuKernels& k) {
          k.norm_backward_input(norm, d_y.view(), x.view(), stats.view(), weight.view(), y.view(), y.view());
        }},
       {"norm_backward_weight", 2 * kBytes,
        [&](CpuKernels& k) {
          k.norm_backward_weight(norm, d_y.view(), x.view(), stats.view(), d_weight.view(), d_bias.view(), true);
        }}},
      rounds);
}

void bench_activations(int rounds) {
  constexpr std::int64_t kRows = 4096, kColumns = 3072;
  constexpr double kBytes = 4.0 * kRows * kColumns;
  Tensor gate(kRows, kColumns), up(kRows, kColumns), out(kRows, kColumns), d_gate(kRows, kColumns);
  const auto gelu = ActivationType::kGeluTanh;
  const auto silu = ActivationType::kSilu;
  bench_memory_cases(
      {{"gelu forward", 2 * kBytes, [&](CpuKernels& k) { k.activation_forward(gelu, {}, up.view(), out.view()); }},
       {"gelu backward", 3 * kBytes,
        [&](CpuKernels& k) { k.activation_backward(gelu, out.view(), {}, up.view(), {}, d_gate.view()); }},
       {"swiglu forward", 3 * kBytes,
        [&](CpuKernels& k) { k.activation_forward(silu, gate.view(), up.view(), out.view()); }},
       {"swiglu backward", 5 * kBytes,
        [&](CpuKernels& k) {
          k.activation_backward(silu, out.view(), gate.view(), up.view(), d_gate.view(), out.view());
        }}},
      rounds);
}

void bench_loss_and_optimizer(int rounds) {
  constexpr std::int64_t kRows = 512, kColumns = 50257, kWeights = 1 << 25;
  constexpr double kBytes = 4.0 * kRows * kColumns;
  Tensor logits(kRows, kColumns), most(1, kRows), sums(1, kRows), chosen(1, kRows);
  std::fill(most.values.begin(), most.values.end(), 1.0f);
  std::fill(sums.values.begin(), sums.values.end(), 5e4f);
  const std::vector<std::int32_t> targets(kRows, 7);
  Tensor w(1, kWeights), g(1, kWeights), m(1, kWeights), v(1, kWeights);
  for (float& value : v.values) value = std::abs(value);
  std::vector<double> blocks(kWeights / 256);
  const TensorView sums_of_blocks =
      make_view(reinterpret_cast<std::byte*>(blocks.data()), DType::kF64, 1, kWeights / 256);
  const AdamW step{.learning_rate = 1e-8, .weight_decay = 0.1};
  bench_memory_cases(
      {{"row_maximum", kBytes, [&](CpuKernels& k) { k.row_maximum(logits.view(), most.view()); }},
       {"softmax_sum", kBytes,
        [&](CpuKernels& k) { k.softmax_sum(logits.view(), most.view(), targets, 0, sums.view(), chosen.view()); }},
       {"cross_entropy_backward", 2 * kBytes,
        [&](CpuKernels& k) { k.cross_entropy_backward(logits.view(), most.view(), sums.view(), targets, 0, 1.0); }},
       {"adamw", 28.0 * kWeights, [&](CpuKernels& k) { k.adamw(step, w.view(), g.view(), m.view(), v.view(), {}); }},
       {"square_blocks", 4.0 * kWeights, [&](CpuKernels& k) { k.square_blocks(g.view(), sums_of_blocks); }},
       {"add (gradients)", 12.0 * kWeights, [&](CpuKernels& k) { k.add(w.view(), g.view()); }}},
      rounds);
}

void bench_memory(int rounds) {
  fmt::print("\nKernels bound by memory, GB/s read and written.\n\n");
  fmt::print("| kernel | MB | 1 thread | 2 threads |\n|---|---|---|---|\n");
  bench_norms(rounds);
  bench_activations(rounds);
  bench_loss_and_optimizer(rounds);
}

}  // namespace
}  // namespace trireme::kernels

int main(int argc, char** argv) {
  const std::string_view what = argc > 1 ? argv[1] : "";
  const int rounds = argc > 2 ? std::max(1, std::atoi(argv[2])) : 7;
  if (!what.empty() && what != "gemm" && what != "attention" && what != "memory") {
    fmt::print(stderr, "bench_kernels: no table '{}': gemm, attention, memory\n", what);
    return 2;
  }
  fmt::print("vector loops: {}; medians of {}\n", trireme::kernels::simd::instruction_set(), rounds);
  if (what.empty() || what == "gemm") trireme::kernels::bench_gemm(rounds);
  if (what.empty() || what == "attention") trireme::kernels::bench_attention(rounds);
  if (what.empty() || what == "memory") trireme::kernels::bench_memory(rounds);
  return 0;
}
