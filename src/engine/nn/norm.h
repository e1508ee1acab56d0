#pragma once

// Layer norm or RMS norm as the model has it: a thin shape over the kernels.

#include "engine/nn/context.h"

namespace trireme::nn {

kernels::NormType norm_type(const model::Config& config);

// Roles and saved names of one of the three norms of a model.
struct NormRoles {
  model::Role weight;
  model::Role bias;
  model::Saved input;
  model::Saved output;
  model::Saved stats;
};
extern const NormRoles kNorm1;
extern const NormRoles kNorm2;
extern const NormRoles kFinalNorm;

void norm_forward(const UnitContext& context, const NormRoles& norm, const WeightViews& weights,
                  const SavedViews& saved);
// The output again, from the input and the kept statistics.
void norm_remake(const UnitContext& context, const NormRoles& norm, const WeightViews& weights,
                 const SavedViews& saved);
// Weight (and bias) gradients to the sink, and d_input = addend + gradient; d_output: [T, h].
void norm_backward(const UnitContext& context, const NormRoles& norm, const WeightViews& weights,
                   const SavedViews& saved, kernels::ConstTensorView d_output, kernels::ConstTensorView addend,
                   kernels::TensorView d_input, GradientSink& sink);

}  // namespace trireme::nn
