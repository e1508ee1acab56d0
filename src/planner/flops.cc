#include "planner/flops.h"

#include "model/flops.h"

namespace trireme::planner {

double hardware_flops(const model::Config& config, std::int64_t sequences, std::int64_t sequence,
                      model::Recompute recompute, bool fused_attention) {
  const double flops = model::hardware_flops(config, sequences, sequence, recompute).count;
  if (fused_attention || recompute != model::Recompute::kSelective) return flops;
  const model::UnitFlops layer = model::forward_flops(config, model::UnitKind::kDecoder, sequences, sequence);
  return flops + 3.0 * static_cast<double>(config.layers) * layer.attention_core;
}

}  // namespace trireme::planner
