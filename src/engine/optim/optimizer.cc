#include "engine/optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace trireme::optim {
namespace {

// Elements that one double of square_blocks() covers; plan's kScalarBlock is the same number by contract of the kernel.
constexpr std::int64_t kSquareBlock = 256;

}  // namespace

void add_squares(kernels::Device& device, kernels::ConstTensorView gradient, std::int64_t piece,
                 kernels::TensorView scratch, ExactSum& sum) {
  TRIREME_CHECK_EQ(piece % kSquareBlock, 0);
  TRIREME_CHECK_EQ(gradient.rows, 1);
  std::vector<double> host(static_cast<std::size_t>(divide_up(piece, kSquareBlock)));
  for (std::int64_t begin = 0; begin < gradient.columns; begin += piece) {
    const std::int64_t count = std::min(piece, gradient.columns - begin);
    const std::int64_t blocks = divide_up(count, kSquareBlock);
    const kernels::TensorView out = kernels::column_range(scratch, 0, blocks);
    device.kernels().square_blocks(kernels::column_range(gradient, begin, count), out);
    device.copy_to_host(host.data(), out.data, Bytes{blocks * dtype_size(DType::kF64)});
    for (std::int64_t i = 0; i < blocks; ++i) sum.add(host[static_cast<std::size_t>(i)]);
  }
}

double clip_factor(const OptimizerConfig& config, double norm) {
  if (config.clip_norm <= 0.0 || norm <= config.clip_norm) return 1.0;
  return config.clip_norm / norm;
}

void adamw_update(kernels::Kernels& kernels, const Update& update, bool decay, kernels::TensorView weights,
                  kernels::ConstTensorView gradients, kernels::TensorView first_moment,
                  kernels::TensorView second_moment, kernels::TensorView rounded) {
  const double step = static_cast<double>(update.step);
  kernels.adamw({.learning_rate = update.learning_rate,
                 .beta1 = update.config.beta1,
                 .beta2 = update.config.beta2,
                 .epsilon = update.config.epsilon,
                 .weight_decay = decay ? update.config.weight_decay : 0.0,
                 .bias_correction1 = 1.0 - std::pow(update.config.beta1, step),
                 .bias_correction2 = 1.0 - std::pow(update.config.beta2, step),
                 .gradient_scale = update.gradient_scale},
                weights, gradients, first_moment, second_moment, rounded);
}

}  // namespace trireme::optim
