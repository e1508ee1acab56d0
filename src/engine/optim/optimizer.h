#pragma once

// AdamW on whatever part of a tensor it is given, and the gradient norm's accumulator. No communication here: parallel/
// sums the accumulator over ranks, then the clip factor comes back in.

#include <cstdint>

#include "base/exact_sum.h"
#include "engine/kernels/device.h"

namespace trireme::optim {

struct OptimizerConfig {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;  // decoupled; on matrices only
  double clip_norm = 1.0;     // of the global gradient norm; 0: no clipping
  friend bool operator==(const OptimizerConfig&, const OptimizerConfig&) = default;
};

// Adds the squares of a flat gradient part to `sum`: floating-point sums within scalar blocks, integers beyond, so that
// the result does not depend on how tensors are cut at block boundaries. scratch: F64, one element a scalar block of
// `piece` elements.
void add_squares(kernels::Device& device, kernels::ConstTensorView gradient, std::int64_t piece,
                 kernels::TensorView scratch, ExactSum& sum);

// min(1, clip_norm / norm); 1 where clipping is off.
double clip_factor(const OptimizerConfig& config, double norm);

// The update of one part. step counts from 1. rounded: the new weights in the type that the run computes in, where
// `weights` are master weights; else empty.
struct Update {
  OptimizerConfig config;
  double learning_rate = 0.0;
  std::int64_t step = 1;
  double gradient_scale = 1.0;
};
void adamw_update(kernels::Kernels& kernels, const Update& update, bool decay, kernels::TensorView weights,
                  kernels::ConstTensorView gradients, kernels::TensorView first_moment,
                  kernels::TensorView second_moment, kernels::TensorView rounded);

}  // namespace trireme::optim
