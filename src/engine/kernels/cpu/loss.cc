#include <algorithm>
#include <cmath>

#include "engine/kernels/cpu/cpu_kernels.h"
#include "engine/kernels/cpu/rows.h"
#include "engine/kernels/cpu/simd.h"

namespace trireme::kernels {
namespace {

using cpu::parallel_for;
using cpu::readable;
using cpu::Rows;
using cpu::writable;

bool ignored(std::span<const std::int32_t> targets, std::int64_t t) {
  return targets[static_cast<std::size_t>(t)] == kIgnoredTarget;
}

}  // namespace

void CpuKernels::row_maximum(ConstTensorView logits, TensorView row_max) {
  const Rows<const float> rows = readable(logits, logits.rows, logits.columns, "logits");
  float* most = writable(row_max, 1, logits.rows, "row_max").data;
  parallel_for(team_, logits.rows,
               [&](std::int64_t t) { most[t] = simd::scaled_maximum(rows.row(t), 1.0f, logits.columns); });
}

void CpuKernels::softmax_sum(ConstTensorView logits, ConstTensorView row_max, std::span<const std::int32_t> targets,
                             std::int64_t vocabulary_begin, TensorView row_sum, TensorView target_logit) {
  TRIREME_CHECK_EQ(static_cast<std::int64_t>(targets.size()), logits.rows);
  const Rows<const float> rows = readable(logits, logits.rows, logits.columns, "logits");
  const float* most = readable(row_max, 1, logits.rows, "row_max").data;
  float* sums = writable(row_sum, 1, logits.rows, "row_sum").data;
  float* chosen = writable(target_logit, 1, logits.rows, "target_logit").data;
  parallel_for(team_, logits.rows, [&](std::int64_t t) {
    sums[t] = simd::exponential_sum(rows.row(t), most[t], logits.columns);
    const std::int64_t target = targets[static_cast<std::size_t>(t)] - vocabulary_begin;
    chosen[t] = target >= 0 && target < logits.columns ? rows.row(t)[target] : 0.0f;
  });
}

void CpuKernels::cross_entropy_loss(ConstTensorView row_max, ConstTensorView row_sum, ConstTensorView target_logit,
                                    std::span<const std::int32_t> targets, TensorView loss) {
  const std::int64_t n = loss.columns;
  TRIREME_CHECK_EQ(static_cast<std::int64_t>(targets.size()), n);
  const float* most = readable(row_max, 1, n, "row_max").data;
  const float* sums = readable(row_sum, 1, n, "row_sum").data;
  const float* chosen = readable(target_logit, 1, n, "target_logit").data;
  float* result = writable(loss, 1, n, "loss").data;
  for (std::int64_t t = 0; t < n; ++t) {
    result[t] = ignored(targets, t) ? 0.0f : std::log(sums[t]) + most[t] - chosen[t];
  }
}

void CpuKernels::cross_entropy_backward(TensorView logits, ConstTensorView row_max, ConstTensorView row_sum,
                                        std::span<const std::int32_t> targets, std::int64_t vocabulary_begin,
                                        double scale) {
  TRIREME_CHECK_EQ(static_cast<std::int64_t>(targets.size()), logits.rows);
  const Rows<float> rows = writable(logits, logits.rows, logits.columns, "logits");
  const float* most = readable(row_max, 1, logits.rows, "row_max").data;
  const float* sums = readable(row_sum, 1, logits.rows, "row_sum").data;
  parallel_for(team_, logits.rows, [&](std::int64_t t) {
    if (ignored(targets, t)) {
      std::fill_n(rows.row(t), logits.columns, 0.0f);
      return;
    }
    simd::softmax_gradient(rows.row(t), most[t], sums[t], static_cast<float>(scale),
                           targets[static_cast<std::size_t>(t)] - vocabulary_begin, logits.columns);
  });
}

}  // namespace trireme::kernels
