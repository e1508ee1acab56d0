#include <vector>

#include "engine/kernels/cpu/test_workspace.h"

namespace trireme::kernels {
namespace {

constexpr Promise kExact{.tolerance = 2e-6, .reference_bits = true, .rows_at_a_time = 1, .columns_alone = true};
constexpr Promise kExactSum{.tolerance = 2e-6, .reference_bits = true, .columns_alone = true};

// Ids in [0, 50), of the workspace's rows; the tables hold [10, 40).
template <class Work>
std::vector<std::int32_t> ids_of(const Work& w) {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < w.rows.count; ++i) {
    ids.push_back(static_cast<std::int32_t>((w.rows.begin + i) * 37 % 50));
  }
  return ids;
}

TEST(CpuEmbedding, Forward) {
  expect_kernel_on_shapes(kExact, [](Kernels& kernels, auto& w) {
    kernels.embedding_forward(ids_of(w), w.random("table", whole(30), w.columns), 10, w.output("out"));
  });
}

TEST(CpuEmbedding, Backward) {
  for (const bool accumulate : {false, true}) {
    expect_kernel_on_shapes(kExactSum, [&](Kernels& kernels, auto& w) {
      kernels.embedding_backward(ids_of(w), w.random("d_out"), 10, w.update("d_table", whole(30), w.columns),
                                 accumulate);
    });
  }
}

TEST(CpuEmbedding, Positions) {
  for (const std::int64_t sequence : {1, 5, 65}) {
    for (const std::int64_t columns : {1, 3, 17, 65, 257}) {
      Promise promise = kExact;
      promise.rows_at_a_time = sequence;
      expect_kernel(2 * sequence, columns, promise, [&](Kernels& kernels, auto& w) {
        kernels.position_forward(w.random("table", whole(sequence + 3), w.columns), sequence, w.update("out"));
      });
      for (const bool accumulate : {false, true}) {
        expect_kernel(3 * sequence, columns, kExactSum, [&](Kernels& kernels, auto& w) {
          kernels.position_backward(w.random("d_out"), sequence, w.update("d_table", whole(sequence + 3), w.columns),
                                    accumulate);
        });
      }
    }
  }
}

TEST(CpuEmbedding, Rotary) {
  for (const std::int64_t head_dim : {2, 6, 34, 64, 130}) {
    for (const bool inverse : {false, true}) {
      Promise promise = kExact;
      promise.columns_alone = false;  // a head's halves go together
      promise.rows_at_a_time = 5;
      expect_kernel(15, 3 * head_dim, promise, [&](Kernels& kernels, auto& w) {
        kernels.rotary(w.update("x"), 3, head_dim, w.random("angles", whole(5), whole(head_dim)), 5, inverse);
      });
    }
  }
}

// One head alone: tensor-parallel ranks hold some of them.
TEST(CpuEmbedding, RotaryOfAHeadAlone) {
  Inputs inputs;
  CpuKernels kernels(2);
  const auto run = [](Kernels& k, auto& w) {
    k.rotary(w.update("x"), w.columns.count / 34, 34, w.random("angles", whole(5), whole(34)), 5, false);
  };
  const Place all{whole(10), whole(3 * 34)};
  const auto result = run_at<float>(all, inputs, kernels, run);
  for (const std::int64_t head : {0, 1, 2}) {
    Place part = all;
    part.columns = {3 * 34, head * 34, 34};
    part.offset = head;
    expect_same_bits(run_at<float>(part, inputs, kernels, run), result);
  }
}

}  // namespace
}  // namespace trireme::kernels
