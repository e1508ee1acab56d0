#include "engine/nn/unit_runner.h"

#include <algorithm>

#include "engine/nn/pass_runner.h"

namespace trireme::nn {

using model::FlowPass;

void run_pass(const UnitContext& context, const plan::UnitProgram& unit, FlowPass pass, const WeightViews& weights,
              const PassBuffers& buffers, GradientSink* sink) {
  PassRunner(context, unit, weights, buffers, sink).run(pass, nullptr);
}

void run_logits(const UnitContext& context, const plan::UnitProgram& unit, const WeightViews& weights,
                const PassBuffers& buffers, const TakeBlock& take) {
  PassRunner(context, unit, weights, buffers, nullptr).run(FlowPass::kLoss, &take);
}

std::int64_t counted_targets(std::span<const std::int32_t> targets) {
  return std::ranges::count_if(targets, [](std::int32_t target) { return target != kernels::kIgnoredTarget; });
}

}  // namespace trireme::nn
