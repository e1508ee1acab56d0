#include <cmath>

#include "engine/kernels/cpu/cpu_kernels.h"
#include "engine/kernels/cpu/simd.h"
#include "engine/kernels/cpu/strip_sum.h"
#include "engine/kernels/cpu/typed_rows.h"

namespace trireme::kernels {
namespace {

using cpu::any_narrow;
using cpu::in_rows;
using cpu::InRows;
using cpu::optional_rows;
using cpu::out_rows;
using cpu::OutRows;
using cpu::parallel_pieces;
using cpu::readable;
using cpu::Room;
using cpu::Rows;
using cpu::SharedRow;
using cpu::writable;

constexpr std::int64_t kRowsAtATime = 8;  // of a thread

simd::RowStats stats_of(NormType type, const float* x, std::int64_t n, double epsilon) {
  const auto count = static_cast<float>(n);
  simd::RowStats stats;
  if (type == NormType::kLayerNorm) stats.mean = simd::sum(x, n) / count;
  const float variance = simd::square_deviation(x, stats.mean, n) / count;
  stats.inverse_deviation = 1.0f / std::sqrt(variance + static_cast<float>(epsilon));
  return stats;
}

simd::RowStats stats_at(const Rows<const float>& stats, std::int64_t row) {
  return {stats.row(row)[0], stats.row(row)[1]};
}

}  // namespace

void CpuKernels::norm_forward(NormType type, ConstTensorView x, ConstTensorView weight, ConstTensorView bias,
                              double epsilon, TensorView y, TensorView stats) {
  const InRows values = in_rows(x, x.rows, x.columns, "x");
  const Rows<float> kept = writable(stats, x.rows, 2, "stats");
  parallel_pieces(team_, x.rows, kRowsAtATime, [&](std::int64_t begin, std::int64_t end) {
    Room room(values.is_narrow(), 1, x.columns);
    for (std::int64_t t = begin; t < end; ++t) {
      const simd::RowStats of_row = stats_of(type, values.row(t, room[0]), x.columns, epsilon);
      kept.row(t)[0] = of_row.mean;
      kept.row(t)[1] = of_row.inverse_deviation;
    }
  });
  norm_apply(type, x, stats, weight, bias, y);
}

void CpuKernels::norm_apply(NormType type, ConstTensorView x, ConstTensorView stats, ConstTensorView weight,
                            ConstTensorView bias, TensorView y) {
  TRIREME_CHECK(type == NormType::kLayerNorm || bias.empty(), "an RMS norm has no bias");
  const InRows values = in_rows(x, x.rows, x.columns, "x");
  const Rows<const float> kept = readable(stats, x.rows, 2, "stats");
  const OutRows result = out_rows(y, x.rows, x.columns, "y");
  const SharedRow w(weight, x.columns, "weight");
  const SharedRow b(bias, x.columns, "bias");
  parallel_pieces(team_, x.rows, kRowsAtATime, [&](std::int64_t begin, std::int64_t end) {
    Room room(any_narrow(values, result), 2, x.columns);
    for (std::int64_t t = begin; t < end; ++t) {
      float* row = result.open(t, room[0]);
      simd::norm_apply(values.row(t, room[1]), stats_at(kept, t), w.data(), b.data(), row, x.columns);
      result.done(t, row);
    }
  });
}

void CpuKernels::norm_backward_input(NormType type, ConstTensorView d_y, ConstTensorView x, ConstTensorView stats,
                                     ConstTensorView weight, ConstTensorView addend, TensorView d_x) {
  const InRows gradient = in_rows(d_y, x.rows, x.columns, "d_y");
  const InRows values = in_rows(x, x.rows, x.columns, "x");
  const Rows<const float> kept = readable(stats, x.rows, 2, "stats");
  const InRows added = optional_rows(addend, x.rows, x.columns, "addend");
  const OutRows result = out_rows(d_x, x.rows, x.columns, "d_x");
  const SharedRow w(weight, x.columns, "weight");
  const auto n = static_cast<float>(x.columns);
  parallel_pieces(team_, x.rows, kRowsAtATime, [&](std::int64_t begin, std::int64_t end) {
    Room room(any_narrow(gradient, values, added, result), 4, x.columns);
    for (std::int64_t t = begin; t < end; ++t) {
      const simd::RowStats of_row = stats_at(kept, t);
      const float* d = gradient.row(t, room[0]);
      const float* v = values.row(t, room[1]);
      const simd::NormSums sums = simd::norm_backward_sums(d, v, of_row, w.data(), x.columns);
      const float mean = type == NormType::kLayerNorm ? sums.gradient / n : 0.0f;
      float* row = result.open(t, room[3]);
      simd::norm_backward_apply(d, v, of_row, w.data(), mean, sums.product / n, added.row(t, room[2]), row, x.columns);
      result.done(t, row);
    }
  });
}

void CpuKernels::norm_backward_weight(NormType type, ConstTensorView d_y, ConstTensorView x, ConstTensorView stats,
                                      TensorView d_weight, TensorView d_bias, bool accumulate) {
  TRIREME_CHECK(type == NormType::kLayerNorm || d_bias.empty(), "an RMS norm has no bias");
  const InRows gradient = in_rows(d_y, x.rows, x.columns, "d_y");
  const InRows values = in_rows(x, x.rows, x.columns, "x");
  const Rows<const float> kept = readable(stats, x.rows, 2, "stats");
  const OutRows sums = out_rows(d_weight, 1, x.columns, "d_weight");
  const bool narrow = any_narrow(gradient, values);
  cpu::sum_strips(team_, sums, x.columns, accumulate, [&](std::int64_t begin, std::int64_t count, float* total) {
    if (!narrow) {
      return simd::strip_sum_normalised(total, gradient.numbers<float>(0, begin), gradient.stride(),
                                        values.numbers<float>(0, begin), values.stride(), kept.data, kept.stride,
                                        x.rows, count);
    }
    if (cpu::lie_in_bf16(gradient, values)) {
      return simd::strip_sum_normalised(total, gradient.numbers<simd::BFloat>(0, begin), gradient.stride(),
                                        values.numbers<simd::BFloat>(0, begin), values.stride(), kept.data, kept.stride,
                                        x.rows, count);
    }
    float d[simd::kMaxStripColumns], v[simd::kMaxStripColumns];
    cpu::sum_chains(x.rows, count, total, [&](std::int64_t row, float* chain) {
      simd::strip_sum_normalised(chain, gradient.part(row, begin, count, d), count, values.part(row, begin, count, v),
                                 count, kept.row(row), kept.stride, 1, count);
    });
  });
  if (!d_bias.empty()) column_sum(d_y, d_bias, accumulate);
}

}  // namespace trireme::kernels
