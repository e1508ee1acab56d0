#include <algorithm>
#include <cstring>
#include <vector>

#include "engine/kernels/cpu/cpu_kernels.h"
#include "engine/kernels/cpu/dropout.h"
#include "engine/kernels/cpu/simd.h"
#include "engine/kernels/cpu/strip_sum.h"
#include "engine/kernels/cpu/typed_rows.h"

namespace trireme::kernels {
namespace {

using cpu::any_narrow;
using cpu::in_rows;
using cpu::InRows;
using cpu::lie_in_bf16;
using cpu::optional_rows;
using cpu::out_rows;
using cpu::OutRows;
using cpu::parallel_pieces;
using cpu::Room;
using cpu::SharedRow;
using simd::BFloat;

// A thread's share at a time: enough to be worth a turn, small enough for a cache.
constexpr std::int64_t kRowsAtATime = 16;

template <class Function>
void for_row_blocks(cpu::Team& team, std::int64_t rows, const Function& function) {
  parallel_pieces(team, rows, kRowsAtATime, function);
}

// Row `row` of a tensor with a row a token.
void row_factors(const Dropout& dropout, std::int64_t row, std::int64_t columns, float* factors) {
  const std::int64_t global_row = dropout.row_begin + row;
  const std::int64_t first = global_row % dropout.sequence * dropout.columns_total + dropout.column_begin;
  cpu::dropout_factors(dropout, global_row / dropout.sequence, first, columns, factors);
}

void check_row_dropout(const Dropout& dropout, std::int64_t rows, std::int64_t columns) {
  if (dropout.probability == 0.0) return;
  TRIREME_CHECK_GT(dropout.sequence, 0);
  const std::int64_t sequences = static_cast<std::int64_t>(dropout.streams.size());
  cpu::check_dropout(dropout, sequences);
  TRIREME_CHECK_GT(rows, 0);
  TRIREME_CHECK_EQ(sequences * dropout.sequence % rows, 0);
  TRIREME_CHECK(dropout.row_begin >= 0 && dropout.row_begin % rows == 0, "rows {}+{}", dropout.row_begin, rows);
  TRIREME_CHECK_LE(dropout.row_begin + rows, sequences * dropout.sequence);
  TRIREME_CHECK_GE(dropout.column_begin, 0);
  TRIREME_CHECK_LE(dropout.column_begin + columns, dropout.columns_total);
}

}  // namespace

void CpuKernels::add_bias(TensorView x, ConstTensorView bias) {
  const OutRows values = out_rows(x, x.rows, x.columns, "x");
  const SharedRow b(bias, x.columns, "bias");
  TRIREME_CHECK(b.data() != nullptr || x.columns == 0, "no bias");
  const bool direct = lie_in_bf16(values);
  for_row_blocks(team_, x.rows, [&](std::int64_t begin, std::int64_t end) {
    Room room(!direct && values.is_narrow(), 1, x.columns);
    for (std::int64_t t = begin; t < end; ++t) {
      if (direct) {
        simd::add(values.numbers<BFloat>(t), b.data(), x.columns);
        continue;
      }
      float* row = values.open(t, room[0], true);
      simd::add(row, b.data(), x.columns);
      values.done(t, row);
    }
  });
}

void CpuKernels::column_sum(ConstTensorView x, TensorView out, bool accumulate) {
  const InRows values = in_rows(x, x.rows, x.columns, "x");
  const OutRows sums = out_rows(out, 1, x.columns, "out");
  cpu::sum_strips(team_, sums, x.columns, accumulate, [&](std::int64_t begin, std::int64_t count, float* total) {
    if (!values.is_narrow()) {
      return simd::strip_sum(total, values.numbers<float>(0, begin), values.stride(), x.rows, count);
    }
    if (lie_in_bf16(values)) {
      return simd::strip_sum(total, values.numbers<BFloat>(0, begin), values.stride(), x.rows, count);
    }
    float room[simd::kMaxStripColumns];
    cpu::sum_chains(x.rows, count, total, [&](std::int64_t row, float* chain) {
      simd::add(chain, values.part(row, begin, count, room), count);
    });
  });
}

void CpuKernels::residual_add(TensorView out, ConstTensorView residual, ConstTensorView x, ConstTensorView bias,
                              const Dropout& dropout) {
  const OutRows result = out_rows(out, x.rows, x.columns, "out");
  const InRows stream = in_rows(residual, x.rows, x.columns, "residual");
  const InRows branch = in_rows(x, x.rows, x.columns, "x");
  const SharedRow b(bias, x.columns, "bias");
  check_row_dropout(dropout, x.rows, x.columns);
  for_row_blocks(team_, x.rows, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> factors(dropout.probability > 0.0 ? static_cast<std::size_t>(x.columns) : 0);
    Room room(any_narrow(result, stream, branch), 3, x.columns);
    for (std::int64_t t = begin; t < end; ++t) {
      if (!factors.empty()) row_factors(dropout, t, x.columns, factors.data());
      float* row = result.open(t, room[0]);
      simd::residual_add(row, stream.row(t, room[1]), branch.row(t, room[2]), b.data(),
                         factors.empty() ? nullptr : factors.data(), x.columns);
      result.done(t, row);
    }
  });
}

void CpuKernels::apply_dropout(TensorView out, ConstTensorView x, const Dropout& dropout) {
  const OutRows result = out_rows(out, x.rows, x.columns, "out");
  const InRows values = in_rows(x, x.rows, x.columns, "x");
  if (dropout.probability == 0.0) {
    if (out.data != x.data) copy(x, out);
    return;
  }
  check_row_dropout(dropout, x.rows, x.columns);
  for_row_blocks(team_, x.rows, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> factors(static_cast<std::size_t>(x.columns));
    Room room(any_narrow(result, values), 2, x.columns);
    for (std::int64_t t = begin; t < end; ++t) {
      row_factors(dropout, t, x.columns, factors.data());
      float* row = result.open(t, room[0]);
      simd::apply_factors(row, values.row(t, room[1]), factors.data(), x.columns);
      result.done(t, row);
    }
  });
}

void CpuKernels::activation_forward(ActivationType type, ConstTensorView gate, ConstTensorView up, TensorView out) {
  const InRows u = in_rows(up, up.rows, up.columns, "up");
  const InRows g = optional_rows(gate, up.rows, up.columns, "gate");
  const OutRows result = out_rows(out, up.rows, up.columns, "out");
  const bool direct = lie_in_bf16(u, g, result);
  for_row_blocks(team_, up.rows, [&](std::int64_t begin, std::int64_t end) {
    Room room(!direct && any_narrow(u, g, result), 3, up.columns);
    for (std::int64_t t = begin; t < end; ++t) {
      if (direct) {
        simd::activation_forward(type, g.numbers<BFloat>(t), u.numbers<BFloat>(t), result.numbers<BFloat>(t),
                                 up.columns);
        continue;
      }
      float* row = result.open(t, room[0]);
      simd::activation_forward(type, g.row(t, room[1]), u.row(t, room[2]), row, up.columns);
      result.done(t, row);
    }
  });
}

void CpuKernels::activation_backward(ActivationType type, ConstTensorView d_out, ConstTensorView gate,
                                     ConstTensorView up, TensorView d_gate, TensorView d_up) {
  TRIREME_CHECK(gate.empty() == d_gate.empty(), "gate and its gradient go together");
  const InRows d = in_rows(d_out, up.rows, up.columns, "d_out");
  const InRows u = in_rows(up, up.rows, up.columns, "up");
  const InRows g = optional_rows(gate, up.rows, up.columns, "gate");
  const OutRows d_g = optional_rows(d_gate, up.rows, up.columns, "d_gate");
  const OutRows d_u = out_rows(d_up, up.rows, up.columns, "d_up");
  const bool direct = lie_in_bf16(d, u, g, d_g, d_u);
  for_row_blocks(team_, up.rows, [&](std::int64_t begin, std::int64_t end) {
    Room room(!direct && any_narrow(d, u, g, d_g, d_u), 5, up.columns);
    for (std::int64_t t = begin; t < end; ++t) {
      if (direct) {
        simd::activation_backward(type, d.numbers<BFloat>(t), g.numbers<BFloat>(t), u.numbers<BFloat>(t),
                                  d_g.numbers<BFloat>(t), d_u.numbers<BFloat>(t), up.columns);
        continue;
      }
      float* d_gate_row = d_g.open(t, room[0]);
      float* d_up_row = d_u.open(t, room[1]);
      simd::activation_backward(type, d.row(t, room[2]), g.row(t, room[3]), u.row(t, room[4]), d_gate_row, d_up_row,
                                up.columns);
      d_g.done(t, d_gate_row);
      d_u.done(t, d_up_row);
    }
  });
}

void CpuKernels::fill(TensorView x, double value) {
  const OutRows values = out_rows(x, x.rows, x.columns, "x");
  Room room(values.is_narrow(), 1, x.columns);
  for (std::int64_t t = 0; t < x.rows; ++t) {
    float* row = values.open(t, room[0]);
    std::fill_n(row, x.columns, static_cast<float>(value));
    values.done(t, row);
  }
}

void CpuKernels::copy(ConstTensorView from, TensorView to) {
  const InRows source = in_rows(from, from.rows, from.columns, "from");
  const OutRows target = out_rows(to, from.rows, from.columns, "to");
  const auto bytes = static_cast<std::size_t>(from.columns * dtype_size(from.dtype));
  for_row_blocks(team_, from.rows, [&](std::int64_t begin, std::int64_t end) {
    const bool converts = source.dtype() != target.dtype();
    Room room(converts, 2, from.columns);
    for (std::int64_t t = begin; t < end; ++t) {
      if (!converts) {
        std::memcpy(target.address(t), source.address(t), bytes);
        continue;
      }
      float* row = target.open(t, room[0]);
      std::memcpy(row, source.row(t, room[1]), static_cast<std::size_t>(from.columns) * sizeof(float));
      target.done(t, row);
    }
  });
}

void CpuKernels::add(TensorView y, ConstTensorView x) {
  const OutRows sums = out_rows(y, x.rows, x.columns, "y");
  const InRows values = in_rows(x, x.rows, x.columns, "x");
  // A whole gradient may be one row.
  constexpr std::int64_t kColumnsAtATime = 4096;
  const std::int64_t pieces = divide_up(x.columns, kColumnsAtATime);
  for_row_blocks(team_, x.rows * pieces, [&](std::int64_t begin, std::int64_t end) {
    Room room(any_narrow(sums, values), 2, std::min(x.columns, kColumnsAtATime));
    for (std::int64_t piece = begin; piece < end; ++piece) {
      const std::int64_t t = piece / pieces, column = piece % pieces * kColumnsAtATime;
      const std::int64_t count = std::min(kColumnsAtATime, x.columns - column);
      float* row = sums.open(t, column, count, room[0], true);
      simd::add(row, values.part(t, column, count, room[1]), count);
      sums.done(t, column, count, row);
    }
  });
}

void CpuKernels::scale(TensorView x, double factor) {
  const OutRows values = out_rows(x, x.rows, x.columns, "x");
  for_row_blocks(team_, x.rows, [&](std::int64_t begin, std::int64_t end) {
    Room room(values.is_narrow(), 1, x.columns);
    for (std::int64_t t = begin; t < end; ++t) {
      float* row = values.open(t, room[0], true);
      simd::scale(row, static_cast<float>(factor), x.columns);
      values.done(t, row);
    }
  });
}

}  // namespace trireme::kernels
