#pragma once

// What the planner is asked: one model, one cluster, one batch, one training framework. And what of it depends on the
// tensor-parallel degree alone.

#include <cstdint>

#include "cluster/cluster.h"
#include "model/config.h"
#include "plan/memory.h"
#include "planner/calibration.h"
#include "planner/collectives.h"

namespace trireme::planner {

// Bytes of one element of each kind.
struct ElementBytes {
  double weight = 4;  // and activation
  double gradient = 4;
  double state = 4;  // moments, statistics, master weights
};

struct Problem {
  model::Config config;
  cluster::Cluster cluster;
  std::int64_t global_batch = 1;  // sequences
  std::int64_t sequence = 1;      // tokens
  plan::RunInputs inputs;         // element types
  FrameworkConstants framework;
  DeviceConstants device;
  ElementBytes element;  // of `inputs`

  double peak_flops_per_s() const;  // of the compute type
  double memory_bytes_per_s() const { return cluster.device.memory_bytes_per_s * device.memory_efficiency; }
  // The cluster's links, as far as collectives reach their bandwidth.
  Links links() const;
  plan::Batch batch(std::int64_t micro_batch) const;
};

// Refuses what no layout could mend: a sequence beyond the model's positions, an unknown framework, a device without
// the compute type's rate.
Result<Problem> make_problem(const model::Config& config, const cluster::Cluster& cluster, std::int64_t global_batch,
                             std::int64_t sequence, DType compute, const Calibration& calibration,
                             const std::string& framework);

// Of a problem in a narrow type: its gradients are fp32, whatever its framework does.
void keep_gradients_in_fp32(Problem& problem);

// Elements of flat shard units (plan/slices.h) on the tensor rank that holds most, before the padding to dp.
struct UnitElements {
  std::int64_t embedding = 0;
  std::int64_t layer = 0;
  std::int64_t head = 0;
  std::int64_t tied_head = 0;  // of the head's use of a tied embedding
};
UnitElements unit_elements(const Problem& problem, int tp);
// Of the tied head's flat buffer, which is laid out like the embedding's where that is sharded.
std::int64_t tied_unit_elements(const UnitElements& elements, int dp);
// As a rank of `dp` holds them.
std::int64_t padded_elements(std::int64_t elements, int dp);

}  // namespace trireme::planner
