#include <algorithm>

#include "engine/kernels/cpu/cpu_kernels.h"
#include "engine/kernels/cpu/rows.h"
#include "engine/kernels/cpu/simd.h"

namespace trireme::kernels {
namespace {

constexpr std::int64_t kPiece = 1 << 14;  // elements a thread takes at a time
constexpr std::int64_t kSquareBlock = 256;

}  // namespace

void CpuKernels::adamw(const AdamW& step, TensorView weights, ConstTensorView gradients, TensorView first_moment,
                       TensorView second_moment) {
  const std::int64_t n = weights.columns;
  float* w = cpu::writable(weights, 1, n, "weights").data;
  const float* g = cpu::readable(gradients, 1, n, "gradients").data;
  float* m = cpu::writable(first_moment, 1, n, "first_moment").data;
  float* v = cpu::writable(second_moment, 1, n, "second_moment").data;
  cpu::parallel_pieces(threads_, n, kPiece, [&](std::int64_t begin, std::int64_t end) {
    simd::adamw(step, w + begin, g + begin, m + begin, v + begin, end - begin);
  });
}

void CpuKernels::square_blocks(ConstTensorView x, TensorView blocks) {
  const std::int64_t count = (x.columns + kSquareBlock - 1) / kSquareBlock;
  const float* values = cpu::readable(x, 1, x.columns, "x").data;
  TRIREME_CHECK(blocks.dtype == DType::kF64 && blocks.rows == 1 && blocks.columns == count,
                "blocks: {} of [{}, {}], not F64 of [1, {}]", dtype_name(blocks.dtype), blocks.rows, blocks.columns,
                count);
  auto* sums = reinterpret_cast<double*>(blocks.data);
  cpu::parallel_for(threads_, count, [&](std::int64_t i) {
    const std::int64_t begin = i * kSquareBlock;
    sums[i] = simd::square_block(values + begin, std::min(kSquareBlock, x.columns - begin));
  });
}

}  // namespace trireme::kernels
