#include <algorithm>

#include "engine/kernels/cpu/cpu_kernels.h"
#include "engine/kernels/cpu/simd.h"
#include "engine/kernels/cpu/typed_rows.h"

namespace trireme::kernels {
namespace {

constexpr std::int64_t kPiece = 1 << 14;  // elements a thread takes at a time
constexpr std::int64_t kSquareBlock = 256;

}  // namespace

void CpuKernels::adamw(const AdamW& step, TensorView weights, ConstTensorView gradients, TensorView first_moment,
                       TensorView second_moment, TensorView rounded) {
  const std::int64_t n = weights.columns;
  float* w = cpu::writable(weights, 1, n, "weights").data;
  const cpu::InRows g = cpu::in_rows(gradients, 1, n, "gradients");
  float* m = cpu::writable(first_moment, 1, n, "first_moment").data;
  float* v = cpu::writable(second_moment, 1, n, "second_moment").data;
  const cpu::OutRows narrow = cpu::optional_rows(rounded, 1, n, "rounded");
  cpu::parallel_pieces(team_, n, kPiece, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t count = end - begin;
    cpu::Room room(g.is_narrow(), 1, count);
    simd::adamw(step, w + begin, g.part(0, begin, count, room[0]), m + begin, v + begin, count);
    if (narrow.is_narrow()) return narrow.done(0, begin, count, w + begin);
    if (!narrow.empty()) std::copy_n(w + begin, count, narrow.open(0, begin, count, nullptr, false));
  });
}

void CpuKernels::square_blocks(ConstTensorView x, TensorView blocks) {
  const std::int64_t count = (x.columns + kSquareBlock - 1) / kSquareBlock;
  const cpu::InRows values = cpu::in_rows(x, 1, x.columns, "x");
  TRIREME_CHECK(blocks.dtype == DType::kF64 && blocks.rows == 1 && blocks.columns == count,
                "blocks: {} of [{}, {}], not F64 of [1, {}]", dtype_name(blocks.dtype), blocks.rows, blocks.columns,
                count);
  auto* sums = reinterpret_cast<double*>(blocks.data);
  cpu::parallel_for(team_, count, [&](std::int64_t i) {
    float room[kSquareBlock];
    const std::int64_t begin = i * kSquareBlock, length = std::min(kSquareBlock, x.columns - begin);
    sums[i] = simd::square_block(values.part(0, begin, length, room), length);
  });
}

}  // namespace trireme::kernels
