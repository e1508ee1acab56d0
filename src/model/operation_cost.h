#pragma once

// What an operation of a flow costs: products, attention's scores, elements through memory, exchanges. Counts of model
// flops (flops.h) and times of a planned run (planner/layer_cost.h) are sums of these.

#include <cstdint>
#include <vector>

#include "model/flow.h"

namespace trireme::model {

// Forward [T, depth] x [depth, columns]; the input's gradient and the weight's are products of the same three extents.
struct Product {
  double columns = 0;
  double depth = 0;
};

// On one of `tp` tensor ranks, which share evenly. Elements are a token's, forward; backward moves twice as many.
struct OperationCost {
  std::vector<Product> products = {};
  double query_columns = 0;  // kAttention: 4 flops each for every position that a token attends to
  double heads = 0;          // kAttention
  std::int64_t window = 0;   // kAttention: of those positions; 0: all before it
  double whole = 0;          // elements read and written: of rows on every rank
  double stream = 0;         // of the residual stream, which ranks share out under sequence parallelism
  double cut = 0;            // of what the tensor axis cuts
  int forward_sums = 0;      // exchanges of the residual stream over the tensor axis
  int backward_sums = 0;
};
// Columns of a value on one of `tp` tensor ranks.
double local_columns(const FlowValue& value, int tp);
OperationCost operation_cost(const UnitFlow& flow, const Operation& operation, int tp);

}  // namespace trireme::model
