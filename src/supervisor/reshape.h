#pragma once

// Which layout a run goes on with on what is left of its hosts: the planner's best legal one, at the same global batch
// and micro-batch.

#include <optional>
#include <string>
#include <vector>

#include "cluster/cluster.h"
#include "model/config.h"
#include "plan/layout.h"
#include "plan/memory.h"
#include "supervisor/hosts.h"

namespace trireme::supervisor {

// What of the run decides.
struct ReshapeProblem {
  model::Config model;
  plan::Batch batch;
  // As the run was asked for: all that does not concern degrees stays (bucket, overlap, order, ...), but for what the
  // new degrees make illegal (sequence parallelism of one tensor rank, an all-reduce of one replica, given chunk
  // layers).
  plan::Layout layout;
  std::optional<cluster::Cluster> cluster = {};  // none: equal cores, one a slot, and links at nominal rates
  Bytes memory_limit = {};                       // of a rank; 0: the cluster's, or none
  bool allow_slow_tp = false;
  plan::RunInputs inputs = {.backend = plan::Backend::kMessages};  // what else a rank holds, for the limit
};

struct ReshapeChoice {
  plan::Layout layout;
  Placement placement;
  double predicted_step_s = 0;
};

// The layout of the least predicted step time on at most the slots of `hosts` (of spares none): tp, pp, dp and, where
// the schedule is interleaved, interleave are free; where nothing else fits, a higher ZeRO stage and more recompute,
// then gradients reduced each micro-batch too. The global batch and the micro-batch stay. Of equal times the one nearer
// to what was asked. The layout as asked, if the hosts have the slots that it needs, whatever its memory. Tensor ranks
// stay on a host unless allowed: a host takes whole groups of them. nullopt: nothing is legal on what is left.
std::optional<ReshapeChoice> choose_layout(const ReshapeProblem& problem, const std::vector<Host>& hosts);

}  // namespace trireme::supervisor
