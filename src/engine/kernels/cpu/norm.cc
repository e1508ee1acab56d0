#include <cmath>
#include <vector>

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

float inverse_deviation(float square_sum, std::int64_t columns, double epsilon) {
  return 1.0f / std::sqrt(square_sum / static_cast<float>(columns) + static_cast<float>(epsilon));
}

simd::RowStats stats_of(NormType type, const float* x, std::int64_t n, double epsilon) {
  simd::RowStats stats;
  if (type == NormType::kLayerNorm) stats.mean = simd::sum(x, n) / static_cast<float>(n);
  stats.inverse_deviation = inverse_deviation(simd::square_deviation(x, stats.mean, n), n, epsilon);
  return stats;
}

// What multiplies the columns.
class Factors {
 public:
  Factors(NormType type, const ConstTensorView& weight, std::int64_t columns) : weight_(weight, columns, "weight") {
    if (type != NormType::kRmsNormOffset) return;
    from_one_.assign(weight_.data(), weight_.data() + columns);
    for (float& factor : from_one_) factor += 1.0f;
  }
  const float* data() const { return from_one_.empty() ? weight_.data() : from_one_.data(); }

 private:
  SharedRow weight_;
  std::vector<float> from_one_;
};

simd::RowStats stats_at(const Rows<const float>& stats, std::int64_t row) {
  return {stats.row(row)[0], stats.row(row)[1]};
}

// The operands of a gradient.
struct Gradient {
  Gradient(NormType type, const ConstTensorView& d_y_view, const ConstTensorView& x_view, const ConstTensorView& stats,
           const ConstTensorView& weight)
      : d_y(in_rows(d_y_view, x_view.rows, x_view.columns, "d_y")),
        x(in_rows(x_view, x_view.rows, x_view.columns, "x")),
        kept(readable(stats, x_view.rows, 2, "stats")),
        factors(type, weight, x_view.columns),
        columns(x_view.columns) {}

  InRows d_y, x;
  Rows<const float> kept;
  Factors factors;
  std::int64_t columns;
};

struct Means {  // of a row: of g = d_y factor, and of g normalised x
  float gradient = 0;
  float product = 0;
};

// d_x, from means_of_row(row, d_y's numbers, x's numbers).
template <class MeansOfRow>
void write_gradient(cpu::Team& team, const Gradient& of, const ConstTensorView& addend, const TensorView& d_x,
                    const MeansOfRow& means_of_row) {
  const InRows added = optional_rows(addend, of.x.rows(), of.columns, "addend");
  const OutRows result = out_rows(d_x, of.x.rows(), of.columns, "d_x");
  parallel_pieces(team, of.x.rows(), kRowsAtATime, [&](std::int64_t begin, std::int64_t end) {
    Room room(any_narrow(of.d_y, of.x, added, result), 4, of.columns);
    for (std::int64_t t = begin; t < end; ++t) {
      const float* d = of.d_y.row(t, room[0]);
      const float* v = of.x.row(t, room[1]);
      const Means means = means_of_row(t, d, v);
      float* row = result.open(t, room[3]);
      simd::norm_backward_apply(d, v, stats_at(of.kept, t), of.factors.data(), means.gradient, means.product,
                                added.row(t, room[2]), row, of.columns);
      result.done(t, row);
    }
  });
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
  const Factors w(type, weight, x.columns);
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
  const Gradient of(type, d_y, x, stats, weight);
  const auto n = static_cast<float>(x.columns);
  write_gradient(team_, of, addend, d_x, [&](std::int64_t t, const float* d, const float* v) {
    const float* factors = of.factors.data();
    return Means{type == NormType::kLayerNorm ? simd::dot(d, factors, x.columns) / n : 0.0f,
                 simd::norm_dot(d, v, stats_at(of.kept, t), factors, x.columns) / n};
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

void CpuKernels::row_square_sums(ConstTensorView x, TensorView sums) {
  const InRows values = in_rows(x, x.rows, x.columns, "x");
  float* result = writable(sums, 1, x.rows, "sums").data;
  parallel_pieces(team_, x.rows, kRowsAtATime, [&](std::int64_t begin, std::int64_t end) {
    Room room(values.is_narrow(), 1, x.columns);
    for (std::int64_t t = begin; t < end; ++t) {
      result[t] = simd::square_deviation(values.row(t, room[0]), 0.0f, x.columns);
    }
  });
}

void CpuKernels::stats_of_square_sums(ConstTensorView sums, std::int64_t columns_total, double epsilon,
                                      TensorView stats) {
  TRIREME_CHECK_GT(columns_total, 0);
  const Rows<float> kept = writable(stats, stats.rows, 2, "stats");
  const float* squares = readable(sums, 1, stats.rows, "sums").data;
  for (std::int64_t t = 0; t < stats.rows; ++t) {
    kept.row(t)[0] = 0.0f;
    kept.row(t)[1] = inverse_deviation(squares[t], columns_total, epsilon);
  }
}

void CpuKernels::norm_row_dots(ConstTensorView d_y, ConstTensorView x, ConstTensorView stats, ConstTensorView weight,
                               TensorView dots) {
  const Gradient of(NormType::kRmsNorm, d_y, x, stats, weight);
  float* result = writable(dots, 1, x.rows, "dots").data;
  parallel_pieces(team_, x.rows, kRowsAtATime, [&](std::int64_t begin, std::int64_t end) {
    Room room(any_narrow(of.d_y, of.x), 2, x.columns);
    for (std::int64_t t = begin; t < end; ++t) {
      result[t] = simd::norm_dot(of.d_y.row(t, room[0]), of.x.row(t, room[1]), stats_at(of.kept, t), of.factors.data(),
                                 x.columns);
    }
  });
}

void CpuKernels::norm_backward_input_of_dots(ConstTensorView d_y, ConstTensorView x, ConstTensorView stats,
                                             ConstTensorView weight, ConstTensorView dots, std::int64_t columns_total,
                                             ConstTensorView addend, TensorView d_x) {
  TRIREME_CHECK_GE(columns_total, x.columns);
  const Gradient of(NormType::kRmsNorm, d_y, x, stats, weight);
  const float* sums = readable(dots, 1, x.rows, "dots").data;
  const auto n = static_cast<float>(columns_total);
  write_gradient(team_, of, addend, d_x, [&](std::int64_t t, const float*, const float*) {
    return Means{0.0f, sums[t] / n};
  });
}

}  // namespace trireme::kernels
