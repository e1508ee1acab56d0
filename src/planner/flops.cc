#include "planner/flops.h"

#include "model/flops.h"

namespace trireme::planner {

double hardware_flops(const model::Config& config, std::int64_t sequences, std::int64_t sequence,
                      model::Recompute recompute, bool fused_attention) {
  const double flops = model::hardware_flops(config, sequences, sequence, recompute).count;
  if (fused_attention || recompute != model::Recompute::kSelective) return flops;
  return flops + 3.0 * model::layers_flops(config, sequences, sequence).attention_core;
}

}  // namespace trireme::planner
