#include <algorithm>
#include <cstring>
#include <vector>

#include "engine/kernels/cpu/cpu_kernels.h"
#include "engine/kernels/cpu/simd.h"
#include "engine/kernels/cpu/typed_rows.h"

namespace trireme::kernels {
namespace {

using cpu::any_narrow;
using cpu::in_rows;
using cpu::InRows;
using cpu::out_rows;
using cpu::OutRows;
using cpu::parallel_for;
using cpu::readable;
using cpu::Room;
using cpu::Rows;

// Tokens of the rows [begin, begin + rows) of a table, those of one row next to each other, ascending.
std::vector<std::int64_t> tokens_by_row(std::span<const std::int32_t> ids, std::int64_t begin, std::int64_t rows) {
  std::vector<std::int64_t> tokens;
  for (std::int64_t t = 0; t < std::ssize(ids); ++t) {
    const std::int64_t row = ids[static_cast<std::size_t>(t)] - begin;
    if (row >= 0 && row < rows) tokens.push_back(t);
  }
  std::ranges::stable_sort(tokens, {}, [&](std::int64_t t) { return ids[static_cast<std::size_t>(t)]; });
  return tokens;
}

// Where in `tokens` the tokens of another row begin; the end last.
std::vector<std::int64_t> row_starts(std::span<const std::int32_t> ids, const std::vector<std::int64_t>& tokens) {
  const auto id = [&](std::int64_t place) {
    return ids[static_cast<std::size_t>(tokens[static_cast<std::size_t>(place)])];
  };
  std::vector<std::int64_t> starts;
  for (std::int64_t i = 0; i < std::ssize(tokens); ++i) {
    if (i == 0 || id(i) != id(i - 1)) starts.push_back(i);
  }
  starts.push_back(std::ssize(tokens));
  return starts;
}

void zero(const OutRows& table, std::int64_t row, std::int64_t columns) {
  std::memset(table.address(row), 0, static_cast<std::size_t>(columns * dtype_size(table.dtype())));
}

}  // namespace

void CpuKernels::embedding_forward(std::span<const std::int32_t> ids, ConstTensorView table, std::int64_t row_begin,
                                   TensorView out) {
  const InRows rows = in_rows(table, table.rows, table.columns, "table");
  const OutRows result = out_rows(out, static_cast<std::int64_t>(ids.size()), table.columns, "out");
  parallel_for(team_, result.rows(), [&](std::int64_t t) {
    const std::int64_t row = ids[static_cast<std::size_t>(t)] - row_begin;
    if (row < 0 || row >= rows.rows()) return zero(result, t, table.columns);
    copy(row_range(table, row, 1), row_range(out, t, 1));
  });
}

// A row of the table is one thread's, so it sees its tokens in ascending order.
void CpuKernels::embedding_backward(std::span<const std::int32_t> ids, ConstTensorView d_out, std::int64_t row_begin,
                                    TensorView d_table, bool accumulate) {
  const InRows gradient = in_rows(d_out, static_cast<std::int64_t>(ids.size()), d_table.columns, "d_out");
  const OutRows rows = out_rows(d_table, d_table.rows, d_table.columns, "d_table");
  if (!accumulate) parallel_for(team_, rows.rows(), [&](std::int64_t row) { zero(rows, row, d_table.columns); });
  const std::vector<std::int64_t> tokens = tokens_by_row(ids, row_begin, rows.rows());
  const std::vector<std::int64_t> starts = row_starts(ids, tokens);
  parallel_for(team_, std::ssize(starts) - 1, [&](std::int64_t i) {
    Room room(any_narrow(gradient, rows), 2, d_table.columns);
    const std::int64_t first = starts[static_cast<std::size_t>(i)];
    const std::int64_t row = ids[static_cast<std::size_t>(tokens[static_cast<std::size_t>(first)])] - row_begin;
    float* sum = rows.open(row, room[0], true);
    for (std::int64_t at = first; at < starts[static_cast<std::size_t>(i) + 1]; ++at) {
      simd::add(sum, gradient.row(tokens[static_cast<std::size_t>(at)], room[1]), d_table.columns);
    }
    rows.done(row, sum);
  });
}

void CpuKernels::position_forward(ConstTensorView table, std::int64_t sequence, TensorView out) {
  TRIREME_CHECK(sequence > 0 && sequence <= table.rows && out.rows % sequence == 0, "sequence {} of {} positions",
                sequence, table.rows);
  const InRows rows = in_rows(table, table.rows, out.columns, "table");
  const OutRows result = out_rows(out, out.rows, out.columns, "out");
  parallel_for(team_, out.rows, [&](std::int64_t t) {
    Room room(any_narrow(rows, result), 2, out.columns);
    float* row = result.open(t, room[0], true);
    simd::add(row, rows.row(t % sequence, room[1]), out.columns);
    result.done(t, row);
  });
}

void CpuKernels::position_backward(ConstTensorView d_out, std::int64_t sequence, TensorView d_table, bool accumulate) {
  TRIREME_CHECK(sequence > 0 && sequence <= d_table.rows && d_out.rows % sequence == 0, "sequence {} of {} positions",
                sequence, d_table.rows);
  const InRows gradient = in_rows(d_out, d_out.rows, d_table.columns, "d_out");
  const OutRows rows = out_rows(d_table, d_table.rows, d_table.columns, "d_table");
  parallel_for(team_, d_table.rows, [&](std::int64_t p) {
    if (!accumulate) zero(rows, p, d_table.columns);
    if (p >= sequence) return;
    std::vector<float> sum(static_cast<std::size_t>(d_table.columns), 0.0f);
    Room room(any_narrow(gradient, rows), 1, d_table.columns);
    for (std::int64_t t = p; t < d_out.rows; t += sequence) {
      simd::add(sum.data(), gradient.row(t, room[0]), d_table.columns);
    }
    float* row = rows.open(p, room[0], true);
    simd::add(row, sum.data(), d_table.columns);
    rows.done(p, row);
  });
}

void CpuKernels::rotary(TensorView x, std::int64_t heads, std::int64_t head_dim, ConstTensorView table,
                        std::int64_t sequence, bool inverse) {
  TRIREME_CHECK(head_dim % 2 == 0 && sequence > 0 && x.rows % sequence == 0, "rotary of {} x {}", x.rows, head_dim);
  const OutRows values = out_rows(x, x.rows, heads * head_dim, "x");
  const Rows<const float> angles = readable(table, table.rows, head_dim, "table");
  TRIREME_CHECK_LE(sequence, table.rows);
  const std::int64_t half = head_dim / 2;
  parallel_for(team_, x.rows, [&](std::int64_t t) {
    const float* angle = angles.row(t % sequence);
    Room room(values.is_narrow(), 1, heads * head_dim);
    float* row = values.open(t, room[0], true);
    for (std::int64_t head = 0; head < heads; ++head) {
      float* first = row + head * head_dim;
      simd::rotate(first, first + half, angle, angle + half, inverse, half);
    }
    values.done(t, row);
  });
}

}  // namespace trireme::kernels
