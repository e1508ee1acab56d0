#include <cstring>
#include <vector>

#include "engine/kernels/cpu/cpu_kernels.h"
#include "engine/kernels/cpu/rows.h"
#include "engine/kernels/cpu/simd.h"

namespace trireme::kernels {
namespace {

using cpu::parallel_for;
using cpu::parallel_pieces;
using cpu::readable;
using cpu::Rows;
using cpu::writable;

// Gradients of tables are cut by columns, so that every thread sees the tokens in ascending order.
constexpr std::int64_t kStrip = 128;

void zero(const Rows<float>& table, std::int64_t row, std::int64_t begin, std::int64_t end) {
  std::memset(table.row(row) + begin, 0, static_cast<std::size_t>(end - begin) * sizeof(float));
}

}  // namespace

void CpuKernels::embedding_forward(std::span<const std::int32_t> ids, ConstTensorView table, std::int64_t row_begin,
                                   TensorView out) {
  const Rows<const float> rows = readable(table, table.rows, table.columns, "table");
  const Rows<float> result = writable(out, static_cast<std::int64_t>(ids.size()), table.columns, "out");
  parallel_for(threads_, result.rows, [&](std::int64_t t) {
    const std::int64_t row = ids[static_cast<std::size_t>(t)] - row_begin;
    const std::size_t bytes = static_cast<std::size_t>(table.columns) * sizeof(float);
    if (row >= 0 && row < rows.rows) {
      std::memcpy(result.row(t), rows.row(row), bytes);
    } else {
      std::memset(result.row(t), 0, bytes);
    }
  });
}

void CpuKernels::embedding_backward(std::span<const std::int32_t> ids, ConstTensorView d_out, std::int64_t row_begin,
                                    TensorView d_table, bool accumulate) {
  const Rows<const float> gradient = readable(d_out, static_cast<std::int64_t>(ids.size()), d_table.columns, "d_out");
  const Rows<float> rows = writable(d_table, d_table.rows, d_table.columns, "d_table");
  parallel_pieces(threads_, d_table.columns, kStrip, [&](std::int64_t begin, std::int64_t end) {
    if (!accumulate) {
      for (std::int64_t row = 0; row < rows.rows; ++row) zero(rows, row, begin, end);
    }
    for (std::int64_t t = 0; t < gradient.rows; ++t) {
      const std::int64_t row = ids[static_cast<std::size_t>(t)] - row_begin;
      if (row >= 0 && row < rows.rows) simd::add(rows.row(row) + begin, gradient.row(t) + begin, end - begin);
    }
  });
}

void CpuKernels::position_forward(ConstTensorView table, std::int64_t sequence, TensorView out) {
  TRIREME_CHECK(sequence > 0 && sequence <= table.rows && out.rows % sequence == 0, "sequence {} of {} positions",
                sequence, table.rows);
  const Rows<const float> rows = readable(table, table.rows, out.columns, "table");
  const Rows<float> result = writable(out, out.rows, out.columns, "out");
  parallel_for(threads_, out.rows,
               [&](std::int64_t t) { simd::add(result.row(t), rows.row(t % sequence), out.columns); });
}

void CpuKernels::position_backward(ConstTensorView d_out, std::int64_t sequence, TensorView d_table, bool accumulate) {
  TRIREME_CHECK(sequence > 0 && sequence <= d_table.rows && d_out.rows % sequence == 0, "sequence {} of {} positions",
                sequence, d_table.rows);
  const Rows<const float> gradient = readable(d_out, d_out.rows, d_table.columns, "d_out");
  const Rows<float> rows = writable(d_table, d_table.rows, d_table.columns, "d_table");
  parallel_for(threads_, d_table.rows, [&](std::int64_t p) {
    if (!accumulate) zero(rows, p, 0, rows.columns);
    if (p >= sequence) return;
    std::vector<float> sum(static_cast<std::size_t>(rows.columns), 0.0f);
    for (std::int64_t t = p; t < d_out.rows; t += sequence) simd::add(sum.data(), gradient.row(t), rows.columns);
    simd::add(rows.row(p), sum.data(), rows.columns);
  });
}

void CpuKernels::rotary(TensorView x, std::int64_t heads, std::int64_t head_dim, ConstTensorView table,
                        std::int64_t sequence, bool inverse) {
  TRIREME_CHECK(head_dim % 2 == 0 && sequence > 0 && x.rows % sequence == 0, "rotary of {} x {}", x.rows, head_dim);
  const Rows<float> values = writable(x, x.rows, heads * head_dim, "x");
  const Rows<const float> angles = readable(table, table.rows, head_dim, "table");
  TRIREME_CHECK_LE(sequence, table.rows);
  const std::int64_t half = head_dim / 2;
  parallel_for(threads_, x.rows, [&](std::int64_t t) {
    const float* angle = angles.row(t % sequence);
    for (std::int64_t head = 0; head < heads; ++head) {
      float* first = values.row(t) + head * head_dim;
      simd::rotate(first, first + half, angle, angle + half, inverse, half);
    }
  });
}

}  // namespace trireme::kernels
