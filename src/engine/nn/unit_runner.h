#pragma once

// Runs a pass of a unit as its program says (plan/unit_program.h): one runner an operation, each a thin shape over the
// kernels and the communicator of the tensor axis. Stateless: weights and buffers come in as views.

#include <functional>
#include <span>

#include "engine/nn/context.h"
#include "plan/unit_program.h"

namespace trireme::nn {

// Static buffers of the loss (class logits and loss).
struct LossBuffers {
  kernels::TensorView logits;     // [logit_rows, local vocabulary]
  kernels::TensorView row_terms;  // [3, logit_rows]: maximum, sum of exponentials, target's logit
  kernels::TensorView losses;     // [1, T]: of every token
};

struct PassBuffers {
  std::span<const kernels::TensorView> saved;  // by index in UnitProgram::saved; what is not there is an empty view
  kernels::TensorView output = {};             // forward
  kernels::TensorView input_gradient = {};     // backward-input
  LossBuffers loss = {};
  // 1 / (tokens of the global batch that bear a loss): it enters the gradient of the logits, and nothing divides later.
  double loss_scale = 0.0;
};

// sink: of passes that give weights' gradients; the head's kHeadWeight is the tied accumulator where embeddings are
// tied.
void run_pass(const UnitContext& context, const plan::UnitProgram& unit, model::FlowPass pass,
              const WeightViews& weights, const PassBuffers& buffers, GradientSink* sink = nullptr);

// The logits alone: calls `take` with each block's first row and its logits of this rank's vocabulary rows.
using TakeBlock = std::function<void(std::int64_t first_row, kernels::ConstTensorView logits)>;
void run_logits(const UnitContext& context, const plan::UnitProgram& unit, const WeightViews& weights,
                const PassBuffers& buffers, const TakeBlock& take);

// How many of the targets bear a loss.
std::int64_t counted_targets(std::span<const std::int32_t> targets);

}  // namespace trireme::nn
