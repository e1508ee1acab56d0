#include <algorithm>
#include <cstring>
#include <vector>

#include "engine/kernels/cpu/cpu_kernels.h"
#include "engine/kernels/cpu/dropout.h"
#include "engine/kernels/cpu/rows.h"
#include "engine/kernels/cpu/simd.h"

namespace trireme::kernels {
namespace {

using cpu::optional_row;
using cpu::parallel_for;
using cpu::parallel_pieces;
using cpu::readable;
using cpu::Rows;
using cpu::writable;

// A thread's share at a time: enough to be worth a turn, small enough for a cache.
constexpr std::int64_t kRowsAtATime = 16;

template <class Function>
void for_row_blocks(int threads, std::int64_t rows, const Function& function) {
  parallel_pieces(threads, rows, kRowsAtATime, function);
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
  const Rows<float> values = writable(x, x.rows, x.columns, "x");
  const float* b = readable(bias, 1, x.columns, "bias").data;
  for_row_blocks(threads_, x.rows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) simd::add(values.row(t), b, x.columns);
  });
}

void CpuKernels::column_sum(ConstTensorView x, TensorView out, bool accumulate) {
  const Rows<const float> values = readable(x, x.rows, x.columns, "x");
  float* sums = writable(out, 1, x.columns, "out").data;
  parallel_pieces(threads_, x.columns, simd::kMaxStripColumns, [&](std::int64_t begin, std::int64_t end) {
    float total[simd::kMaxStripColumns] = {};
    simd::strip_sum(total, values.data + begin, values.stride, x.rows, end - begin);
    if (accumulate) {
      simd::add(sums + begin, total, end - begin);
    } else {
      std::memcpy(sums + begin, total, static_cast<std::size_t>(end - begin) * sizeof(float));
    }
  });
}

void CpuKernels::residual_add(TensorView out, ConstTensorView residual, ConstTensorView x, ConstTensorView bias,
                              const Dropout& dropout) {
  const Rows<float> result = writable(out, x.rows, x.columns, "out");
  const Rows<const float> stream = readable(residual, x.rows, x.columns, "residual");
  const Rows<const float> branch = readable(x, x.rows, x.columns, "x");
  const float* b = optional_row(bias, x.columns, "bias");
  check_row_dropout(dropout, x.rows, x.columns);
  for_row_blocks(threads_, x.rows, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> factors(dropout.probability > 0.0 ? static_cast<std::size_t>(x.columns) : 0);
    for (std::int64_t t = begin; t < end; ++t) {
      if (!factors.empty()) row_factors(dropout, t, x.columns, factors.data());
      simd::residual_add(result.row(t), stream.row(t), branch.row(t), b, factors.empty() ? nullptr : factors.data(),
                         x.columns);
    }
  });
}

void CpuKernels::apply_dropout(TensorView out, ConstTensorView x, const Dropout& dropout) {
  const Rows<float> result = writable(out, x.rows, x.columns, "out");
  const Rows<const float> values = readable(x, x.rows, x.columns, "x");
  if (dropout.probability == 0.0) {
    if (result.data != values.data) copy(x, out);
    return;
  }
  check_row_dropout(dropout, x.rows, x.columns);
  for_row_blocks(threads_, x.rows, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> factors(static_cast<std::size_t>(x.columns));
    for (std::int64_t t = begin; t < end; ++t) {
      row_factors(dropout, t, x.columns, factors.data());
      simd::apply_factors(result.row(t), values.row(t), factors.data(), x.columns);
    }
  });
}

void CpuKernels::activation_forward(ActivationType type, ConstTensorView gate, ConstTensorView up, TensorView out) {
  const Rows<const float> u = readable(up, up.rows, up.columns, "up");
  const Rows<const float> g = gate.empty() ? Rows<const float>{} : readable(gate, up.rows, up.columns, "gate");
  const Rows<float> result = writable(out, up.rows, up.columns, "out");
  for_row_blocks(threads_, up.rows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      simd::activation_forward(type, g.row(t), u.row(t), result.row(t), up.columns);
    }
  });
}

void CpuKernels::activation_backward(ActivationType type, ConstTensorView d_out, ConstTensorView gate,
                                     ConstTensorView up, TensorView d_gate, TensorView d_up) {
  TRIREME_CHECK(gate.empty() == d_gate.empty(), "gate and its gradient go together");
  const Rows<const float> d = readable(d_out, up.rows, up.columns, "d_out");
  const Rows<const float> u = readable(up, up.rows, up.columns, "up");
  const Rows<const float> g = gate.empty() ? Rows<const float>{} : readable(gate, up.rows, up.columns, "gate");
  const Rows<float> d_g = gate.empty() ? Rows<float>{} : writable(d_gate, up.rows, up.columns, "d_gate");
  const Rows<float> d_u = writable(d_up, up.rows, up.columns, "d_up");
  for_row_blocks(threads_, up.rows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      simd::activation_backward(type, d.row(t), g.row(t), u.row(t), d_g.row(t), d_u.row(t), up.columns);
    }
  });
}

void CpuKernels::fill(TensorView x, double value) {
  const Rows<float> values = writable(x, x.rows, x.columns, "x");
  for (std::int64_t t = 0; t < x.rows; ++t) {
    std::fill_n(values.row(t), x.columns, static_cast<float>(value));
  }
}

void CpuKernels::copy(ConstTensorView from, TensorView to) {
  const Rows<const float> source = readable(from, from.rows, from.columns, "from");
  const Rows<float> target = writable(to, from.rows, from.columns, "to");
  for_row_blocks(threads_, from.rows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      std::memcpy(target.row(t), source.row(t), static_cast<std::size_t>(from.columns) * sizeof(float));
    }
  });
}

void CpuKernels::add(TensorView y, ConstTensorView x) {
  const Rows<float> sums = writable(y, x.rows, x.columns, "y");
  const Rows<const float> values = readable(x, x.rows, x.columns, "x");
  for_row_blocks(threads_, x.rows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) simd::add(sums.row(t), values.row(t), x.columns);
  });
}

}  // namespace trireme::kernels
