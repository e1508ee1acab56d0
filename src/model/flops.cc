#include "model/flops.h"

#include <algorithm>
#include <vector>

#include "model/operation_cost.h"

namespace trireme::model {
namespace {

double real(std::int64_t value) { return static_cast<double>(value); }

double sum(const UnitFlops& flops) { return flops.gemm + flops.attention_core; }

double forward_of_all(const Config& config, std::int64_t sequences, std::int64_t sequence) {
  const UnitFlow head = unit_flow(config, unit_count(config) - 1);
  return sum(layers_flops(config, sequences, sequence)) + sum(forward_flops(head, sequences, sequence));
}

}  // namespace

UnitFlops forward_flops(const UnitFlow& flow, std::int64_t sequences, std::int64_t sequence) {
  const double tokens = real(sequences) * real(sequence);
  UnitFlops flops;
  for (const Operation& operation : flow.operations) {
    const OperationCost cost = operation_cost(flow, operation, 1);
    for (const Product& product : cost.products) flops.gemm += 2.0 * tokens * product.columns * product.depth;
    const std::int64_t seen = cost.window > 0 ? std::min(cost.window, sequence) : sequence;
    flops.attention_core += 4.0 * tokens * real(seen) * cost.query_columns;
  }
  return flops;
}

UnitFlops layers_flops(const Config& config, std::int64_t sequences, std::int64_t sequence) {
  const std::vector<UnitFlow> flows = flows_by_class(config);
  const std::vector<std::int64_t> units = units_by_class(config);
  UnitFlops flops;
  for (std::size_t i = 0; i < flows.size(); ++i) {
    if (flows[i].kind != UnitKind::kDecoder) continue;
    const UnitFlops one = forward_flops(flows[i], sequences, sequence);
    flops.gemm += real(units[i]) * one.gemm;
    flops.attention_core += real(units[i]) * one.attention_core;
  }
  return flops;
}

Flops model_flops(const Config& config, std::int64_t sequences, std::int64_t sequence) {
  return {3.0 * forward_of_all(config, sequences, sequence)};
}

Flops hardware_flops(const Config& config, std::int64_t sequences, std::int64_t sequence, Recompute recompute) {
  // Selective recompute repeats elementwise work only, which this count leaves out everywhere.
  const double again = recompute == Recompute::kFull ? sum(layers_flops(config, sequences, sequence)) : 0.0;
  return {model_flops(config, sequences, sequence).count + again};
}

}  // namespace trireme::model
