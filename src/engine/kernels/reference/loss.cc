#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/kernels/reference/access.h"
#include "engine/kernels/reference/reference_kernels.h"

namespace trireme::kernels {
namespace {

using reference::readable;
using reference::readable_vector;
using reference::with_type;
using reference::writable;
using reference::writable_vector;

// The local column of row t's target; outside [0, columns) it belongs to another rank.
std::int64_t target_column(std::span<const std::int32_t> targets, std::int64_t t, std::int64_t vocabulary_begin) {
  return targets[static_cast<std::size_t>(t)] - vocabulary_begin;
}

bool ignored(std::span<const std::int32_t> targets, std::int64_t t) {
  return targets[static_cast<std::size_t>(t)] == kIgnoredTarget;
}

}  // namespace

void ReferenceKernels::row_maximum(ConstTensorView logits, TensorView row_max) {
  with_type(logits.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto x = readable<T>(logits, logits.rows, logits.columns, "logits");
    const auto maximum = writable_vector<T>(row_max, logits.rows, "row_max");
    for (std::int64_t t = 0; t < x.rows; ++t) {
      maximum[t] = -std::numeric_limits<T>::infinity();
      for (std::int64_t j = 0; j < x.columns; ++j) maximum[t] = std::max(maximum[t], x(t, j));
    }
  });
}

void ReferenceKernels::softmax_sum(ConstTensorView logits, ConstTensorView row_max,
                                   std::span<const std::int32_t> targets, std::int64_t vocabulary_begin,
                                   TensorView row_sum, TensorView target_logit) {
  TRIREME_CHECK_EQ(static_cast<std::int64_t>(targets.size()), logits.rows);
  with_type(logits.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto x = readable<T>(logits, logits.rows, logits.columns, "logits");
    const auto maximum = readable_vector<T>(row_max, logits.rows, "row_max");
    const auto sum = writable_vector<T>(row_sum, logits.rows, "row_sum");
    const auto logit = writable_vector<T>(target_logit, logits.rows, "target_logit");
    for (std::int64_t t = 0; t < x.rows; ++t) {
      sum[t] = 0;
      for (std::int64_t j = 0; j < x.columns; ++j) sum[t] += std::exp(x(t, j) - maximum[t]);
      const std::int64_t target = target_column(targets, t, vocabulary_begin);
      logit[t] = target >= 0 && target < x.columns ? x(t, target) : T{0};
    }
  });
}

void ReferenceKernels::cross_entropy_loss(ConstTensorView row_max, ConstTensorView row_sum,
                                          ConstTensorView target_logit, std::span<const std::int32_t> targets,
                                          TensorView loss) {
  TRIREME_CHECK_EQ(static_cast<std::int64_t>(targets.size()), loss.elements());
  with_type(loss.dtype, [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t rows = loss.elements();
    const auto maximum = readable_vector<T>(row_max, rows, "row_max");
    const auto sum = readable_vector<T>(row_sum, rows, "row_sum");
    const auto logit = readable_vector<T>(target_logit, rows, "target_logit");
    const auto result = writable_vector<T>(loss, rows, "loss");
    for (std::int64_t t = 0; t < rows; ++t) {
      result[t] = ignored(targets, t) ? T{0} : std::log(sum[t]) + maximum[t] - logit[t];
    }
  });
}

void ReferenceKernels::cross_entropy_backward(TensorView logits, ConstTensorView row_max, ConstTensorView row_sum,
                                              std::span<const std::int32_t> targets, std::int64_t vocabulary_begin,
                                              double scale) {
  TRIREME_CHECK_EQ(static_cast<std::int64_t>(targets.size()), logits.rows);
  with_type(logits.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto x = writable<T>(logits, logits.rows, logits.columns, "logits");
    const auto maximum = readable_vector<T>(row_max, logits.rows, "row_max");
    const auto sum = readable_vector<T>(row_sum, logits.rows, "row_sum");
    for (std::int64_t t = 0; t < x.rows; ++t) {
      const std::int64_t target = target_column(targets, t, vocabulary_begin);
      for (std::int64_t j = 0; j < x.columns; ++j) {
        const T probability = std::exp(x(t, j) - maximum[t]) / sum[t];
        const T gradient = (j == target ? probability - T{1} : probability) * static_cast<T>(scale);
        x(t, j) = ignored(targets, t) ? T{0} : gradient;
      }
    }
  });
}

}  // namespace trireme::kernels
