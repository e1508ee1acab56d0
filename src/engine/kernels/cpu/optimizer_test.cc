#include "engine/kernels/cpu/test_workspace.h"

namespace trireme::kernels {
namespace {

// A flat part: one row; a shard of it has the same bits.
TEST(CpuOptimizer, AdamW) {
  for (const double decay : {0.0, 0.1}) {
    const AdamW step{.learning_rate = 1e-2,
                     .weight_decay = decay,
                     .bias_correction1 = 0.271,
                     .bias_correction2 = 0.142625,
                     .gradient_scale = 0.7};
    for (const std::int64_t columns : {1, 3, 17, 65, 257, 1000, 40000}) {
      expect_kernel(1, columns, {.tolerance = 2e-6, .columns_alone = true}, [&](Kernels& kernels, auto& w) {
        kernels.adamw(step, w.update("weights"), w.random("gradients"), w.update("first_moment"),
                      w.update_positive("second_moment", w.rows, w.columns), TensorView{});
      });
    }
  }
}

TEST(CpuOptimizer, AdamWOfZeroGradientsOnlyDecays) {
  std::vector<float> w{1.0f, -2.0f, 0.0f}, g(3), m(3), v(3);
  CpuKernels(1).adamw({.learning_rate = 0.5, .weight_decay = 0.5}, row_of(w), row_of(g), row_of(m), row_of(v), {});
  EXPECT_EQ(w, (std::vector<float>{0.75f, -1.5f, 0.0f}));
}

// The clip factor rests on these: the same bits as the reference, on any number of threads, at any alignment, in any
// shard that begins at a block.
TEST(CpuOptimizer, SquareBlocks) {
  Inputs inputs;
  ReferenceKernels reference;
  for (const std::int64_t n : {1, 3, 7, 8, 9, 17, 255, 256, 257, 1000, 10001}) {
    std::vector<double> expected(static_cast<std::size_t>((n + 255) / 256));
    const auto sums_of = [](std::vector<double>& blocks) {
      return make_view(reinterpret_cast<std::byte*>(blocks.data()), DType::kF64, 1,
                       static_cast<std::int64_t>(blocks.size()));
    };
    run_at<float>({whole(1), whole(n)}, inputs, reference,
                  [&](Kernels& kernels, auto& w) { kernels.square_blocks(w.random("x"), sums_of(expected)); });
    for (const int threads : {1, 2}) {
      for (const std::int64_t offset : {0, 1, 3}) {
        CpuKernels cpu(threads);
        std::vector<double> blocks(expected.size());
        run_at<float>({.rows = whole(1), .columns = whole(n), .offset = offset}, inputs, cpu,
                      [&](Kernels& kernels, auto& w) { kernels.square_blocks(w.random("x"), sums_of(blocks)); });
        EXPECT_EQ(blocks, expected) << n;
        if (n < 512) continue;
        std::vector<double> rest(expected.size() - 1);
        run_at<float>({.rows = whole(1), .columns = {n, 256, n - 256}, .offset = offset}, inputs, cpu,
                      [&](Kernels& kernels, auto& w) { kernels.square_blocks(w.random("x"), sums_of(rest)); });
        EXPECT_EQ(rest, std::vector<double>(expected.begin() + 1, expected.end())) << n;
      }
    }
  }
}

}  // namespace
}  // namespace trireme::kernels
