#include "plan/staging.h"

#include <algorithm>

namespace trireme::plan {

Bytes RankStaging::sum() const {
  Bytes sum;
  for (const GroupStaging& group : groups) sum += group.sum();
  return sum;
}

RankStaging staging_of(const model::ParameterTable& table, const Layout& layout, const Batch& batch,
                       const RunInputs& inputs, int rank) {
  RankStaging staging;
  const bool none = inputs.backend == Backend::kThreads && layout.all_reduce == ReduceAlgorithm::kOrdered;
  if (layout.world() == 1 || none) return staging;
  const auto add = [&](const Exchange& e) {
    if (e.collective != Collective::kAllReduce && e.collective != Collective::kReduceScatter) return;
    const ReduceAlgorithm algorithm = algorithm_of(layout, e.group);
    GroupStaging& group = staging.of(e.group);
    const Bytes own = staging_bytes(algorithm, e.collective, e.count, e.element_bytes, e.size, {});
    group.algorithm = std::max(group.algorithm, allocation_size(own));
    const bool library = algorithm == ReduceAlgorithm::kLibrary;
    if (inputs.backend == Backend::kThreads || library || is_own_of(algorithm, e.collective)) return;
    group.backend = std::max(group.backend, message_staging_bytes(e.count, e.element_bytes, e.size, {}));
  };
  for_each_exchange(table, layout, batch, inputs, rank, add);
  if (inputs.evaluation_micro_batches > 0) for_each_evaluation_exchange(table, layout, batch, inputs, rank, add);
  return staging;
}

}  // namespace trireme::plan
