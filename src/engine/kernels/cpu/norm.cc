#include <cmath>
#include <cstring>

#include "engine/kernels/cpu/cpu_kernels.h"
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
  const Rows<const float> values = readable(x, x.rows, x.columns, "x");
  const Rows<float> kept = writable(stats, x.rows, 2, "stats");
  parallel_for(threads_, x.rows, [&](std::int64_t t) {
    const simd::RowStats of_row = stats_of(type, values.row(t), x.columns, epsilon);
    kept.row(t)[0] = of_row.mean;
    kept.row(t)[1] = of_row.inverse_deviation;
  });
  norm_apply(type, x, stats, weight, bias, y);
}

void CpuKernels::norm_apply(NormType type, ConstTensorView x, ConstTensorView stats, ConstTensorView weight,
                            ConstTensorView bias, TensorView y) {
  TRIREME_CHECK(type == NormType::kLayerNorm || bias.empty(), "an RMS norm has no bias");
  const Rows<const float> values = readable(x, x.rows, x.columns, "x");
  const Rows<const float> kept = readable(stats, x.rows, 2, "stats");
  const Rows<float> result = writable(y, x.rows, x.columns, "y");
  const float* w = readable(weight, 1, x.columns, "weight").data;
  const float* b = optional_row(bias, x.columns, "bias");
  parallel_for(threads_, x.rows, [&](std::int64_t t) {
    simd::norm_apply(values.row(t), stats_at(kept, t), w, b, result.row(t), x.columns);
  });
}

void CpuKernels::norm_backward_input(NormType type, ConstTensorView d_y, ConstTensorView x, ConstTensorView stats,
                                     ConstTensorView weight, ConstTensorView addend, TensorView d_x) {
  const Rows<const float> gradient = readable(d_y, x.rows, x.columns, "d_y");
  const Rows<const float> values = readable(x, x.rows, x.columns, "x");
  const Rows<const float> kept = readable(stats, x.rows, 2, "stats");
  const Rows<const float> added = addend.empty() ? Rows<const float>{} : readable(addend, x.rows, x.columns, "addend");
  const Rows<float> result = writable(d_x, x.rows, x.columns, "d_x");
  const float* w = readable(weight, 1, x.columns, "weight").data;
  const auto n = static_cast<float>(x.columns);
  parallel_for(threads_, x.rows, [&](std::int64_t t) {
    const simd::RowStats of_row = stats_at(kept, t);
    const simd::NormSums sums = simd::norm_backward_sums(gradient.row(t), values.row(t), of_row, w, x.columns);
    const float mean = type == NormType::kLayerNorm ? sums.gradient / n : 0.0f;
    simd::norm_backward_apply(gradient.row(t), values.row(t), of_row, w, mean, sums.product / n, added.row(t),
                              result.row(t), x.columns);
  });
}

void CpuKernels::norm_backward_weight(NormType type, ConstTensorView d_y, ConstTensorView x, ConstTensorView stats,
                                      TensorView d_weight, TensorView d_bias, bool accumulate) {
  TRIREME_CHECK(type == NormType::kLayerNorm || d_bias.empty(), "an RMS norm has no bias");
  const Rows<const float> gradient = readable(d_y, x.rows, x.columns, "d_y");
  const Rows<const float> values = readable(x, x.rows, x.columns, "x");
  const Rows<const float> kept = readable(stats, x.rows, 2, "stats");
  float* sums = writable(d_weight, 1, x.columns, "d_weight").data;
  parallel_pieces(threads_, x.columns, simd::kMaxStripColumns, [&](std::int64_t begin, std::int64_t end) {
    float total[simd::kMaxStripColumns] = {};
    simd::strip_sum_normalised(total, gradient.data + begin, gradient.stride, values.data + begin, values.stride,
                               kept.data, kept.stride, x.rows, end - begin);
    if (accumulate) {
      simd::add(sums + begin, total, end - begin);
    } else {
      std::memcpy(sums + begin, total, static_cast<std::size_t>(end - begin) * sizeof(float));
    }
  });
  if (!d_bias.empty()) column_sum(d_y, d_bias, accumulate);
}

}  // namespace trireme::kernels
