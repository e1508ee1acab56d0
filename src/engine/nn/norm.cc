#include "engine/nn/norm.h"

namespace trireme::nn {

using model::Role;
using model::Saved;

const NormRoles kNorm1{Role::kNorm1Weight, Role::kNorm1Bias, Saved::kInput, Saved::kNorm1Output, Saved::kNorm1Stats};
const NormRoles kNorm2{Role::kNorm2Weight, Role::kNorm2Bias, Saved::kMiddle, Saved::kNorm2Output, Saved::kNorm2Stats};
const NormRoles kFinalNorm{Role::kFinalNormWeight, Role::kFinalNormBias, Saved::kInput, Saved::kFinalNormOutput,
                           Saved::kFinalNormStats};

kernels::NormType norm_type(const model::Config& config) {
  return config.norm == model::NormKind::kLayerNorm ? kernels::NormType::kLayerNorm : kernels::NormType::kRmsNorm;
}

void norm_forward(const UnitContext& context, const NormRoles& norm, const WeightViews& weights,
                  const SavedViews& saved) {
  context.kernels().norm_forward(norm_type(context.config), saved[norm.input], weights[norm.weight], weights[norm.bias],
                                 context.config.norm_epsilon, saved[norm.output], saved[norm.stats]);
}

void norm_remake(const UnitContext& context, const NormRoles& norm, const WeightViews& weights,
                 const SavedViews& saved) {
  context.kernels().norm_apply(norm_type(context.config), saved[norm.input], saved[norm.stats], weights[norm.weight],
                               weights[norm.bias], saved[norm.output]);
}

void norm_backward(const UnitContext& context, const NormRoles& norm, const WeightViews& weights,
                   const SavedViews& saved, kernels::ConstTensorView d_output, kernels::ConstTensorView addend,
                   kernels::TensorView d_input, GradientSink& sink) {
  kernels::Kernels& kernels = context.kernels();
  const kernels::NormType type = norm_type(context.config);
  const bool has_bias = !weights[norm.bias].empty();

  const GradientSink::Target d_weight = sink.open(norm.weight);
  const GradientSink::Target d_bias = has_bias ? sink.open(norm.bias) : GradientSink::Target{};
  TRIREME_CHECK(!has_bias || d_bias.accumulate == d_weight.accumulate);
  kernels.norm_backward_weight(type, d_output, saved[norm.input], saved[norm.stats], d_weight.view, d_bias.view,
                               d_weight.accumulate);
  sink.close(norm.weight);
  if (has_bias) sink.close(norm.bias);

  kernels.norm_backward_input(type, d_output, saved[norm.input], saved[norm.stats], weights[norm.weight], addend,
                              d_input);
}

}  // namespace trireme::nn
