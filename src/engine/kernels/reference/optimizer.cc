#include <algorithm>
#include <array>
#include <cmath>

#include "base/units.h"
#include "engine/kernels/reference/access.h"
#include "engine/kernels/reference/reference_kernels.h"
#include "engine/kernels/reference/widened.h"

namespace trireme::kernels {

using reference::readable_vector;
using reference::with_type;
using reference::writable_vector;

// Loshchilov and Hutter, "Decoupled weight decay regularization", 2019; the decay before the step.
void ReferenceKernels::adamw(const AdamW& step, TensorView weights, ConstTensorView gradients, TensorView first_moment,
                             TensorView second_moment, TensorView rounded) {
  reference::Widened widened;
  widened.in(gradients);
  with_type(weights.dtype, [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t size = weights.elements();
    const auto w = writable_vector<T>(weights, size, "weights");
    const auto g = readable_vector<T>(gradients, size, "gradients");
    const auto m = writable_vector<T>(first_moment, size, "first_moment");
    const auto v = writable_vector<T>(second_moment, size, "second_moment");
    const T beta1 = static_cast<T>(step.beta1);
    const T beta2 = static_cast<T>(step.beta2);
    const T decay = static_cast<T>(step.learning_rate * step.weight_decay);
    for (std::int64_t i = 0; i < size; ++i) {
      const T gradient = g[i] * static_cast<T>(step.gradient_scale);
      m[i] = beta1 * m[i] + (T{1} - beta1) * gradient;
      v[i] = beta2 * v[i] + (T{1} - beta2) * gradient * gradient;
      const T mean = m[i] / static_cast<T>(step.bias_correction1);
      const T root = std::sqrt(v[i] / static_cast<T>(step.bias_correction2));
      w[i] -= decay * w[i];
      w[i] -= static_cast<T>(step.learning_rate) * (mean / (root + static_cast<T>(step.epsilon)));
    }
  });
  if (!rounded.empty()) copy(weights, rounded);
}

void ReferenceKernels::square_blocks(ConstTensorView x, TensorView blocks) {
  reference::Widened widened;
  widened.in(x);
  constexpr std::int64_t kBlock = 256;
  constexpr std::int64_t kChains = 8;
  const std::int64_t block_count = divide_up(x.elements(), kBlock);
  const auto sums = writable_vector<double>(blocks, block_count, "blocks");
  with_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto values = readable_vector<T>(flattened(x), x.elements(), "x");
    for (std::int64_t block = 0; block < block_count; ++block) {
      std::array<double, kChains> chain{};
      const std::int64_t begin = block * kBlock;
      for (std::int64_t i = begin; i < std::min(begin + kBlock, values.size); ++i) {
        const double value = values[i];
        chain[static_cast<std::size_t>((i - begin) % kChains)] += value * value;
      }
      sums[block] = ((chain[0] + chain[1]) + (chain[2] + chain[3])) + ((chain[4] + chain[5]) + (chain[6] + chain[7]));
    }
  });
}

}  // namespace trireme::kernels
