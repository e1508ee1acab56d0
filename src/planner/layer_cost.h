#pragma once

// Seconds of one unit's work on one micro-batch on one rank: the costs of its flow's operations
// (model/operation_cost.h), products by shape, attention's core, what is bound by memory, what the tensor axis
// exchanges. An operation takes the longer of its arithmetic and its traffic at the calibrated share of the peaks; a
// pass takes no less than its kernels' launches. Sources: docs/algorithms/planner.md.

#include "model/activations.h"
#include "planner/model_units.h"
#include "planner/problem.h"

namespace trireme::planner {

struct PassTime {
  double gemm = 0;
  double attention = 0;
  double memory = 0;  // bound by memory, or by launches
  double tensor = 0;  // exchange on the tensor axis that nothing hides
  double sum() const { return gemm + attention + memory + tensor; }
  friend PassTime operator+(const PassTime& a, const PassTime& b) {
    return {a.gemm + b.gemm, a.attention + b.attention, a.memory + b.memory, a.tensor + b.tensor};
  }
  friend PassTime operator*(double n, const PassTime& a) {
    return {n * a.gemm, n * a.attention, n * a.memory, n * a.tensor};
  }
};

// Recomputation is part of backward_input.
struct UnitTime {
  PassTime forward;
  PassTime backward_input;
  PassTime backward_weight;
  friend UnitTime operator+(const UnitTime& a, const UnitTime& b) {
    return {a.forward + b.forward, a.backward_input + b.backward_input, a.backward_weight + b.backward_weight};
  }
  friend UnitTime operator*(double n, const UnitTime& a) {
    return {n * a.forward, n * a.backward_input, n * a.backward_weight};
  }
};
struct UnitTimes {
  UnitTime embedding;
  UnitTime layer;  // the mean of all, where they differ
  UnitTime head;
};
UnitTimes unit_times(const Problem& problem, const ModelUnits& units, int tp, bool sequence_parallel,
                     std::int64_t micro_batch, model::Recompute recompute);

// Seconds of a product [rows, depth] x [depth, columns].
double gemm_seconds(const Problem& problem, double rows, double columns, double depth);
// Bytes that the tensor axis moves through one exchange of the residual stream.
double residual_bytes(const Problem& problem, std::int64_t micro_batch);
GroupPlace tensor_place(const Problem& problem, int tp);

}  // namespace trireme::planner
