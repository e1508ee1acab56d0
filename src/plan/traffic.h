#pragma once

// Predicted traffic of a rank: the bytes that it sends in a step, by axis and collective; a walk over its program. Law
// 1: the communicator's counters agree with it to the byte.

#include <cstdint>
#include <map>
#include <utility>

#include "plan/exchanges.h"

namespace trireme::plan {

struct Traffic {
  std::int64_t calls = 0;
  Bytes sent;
};
using TrafficTable = std::map<std::pair<Axis, Collective>, Traffic>;

// One step: of each exchange what sent_elements() says for the algorithm of its group. Tied embeddings over stages: the
// sum moves the copy's gradient as far as this rank's accumulator is complete, so all of it, or the shard under ZeRO >=
// 1; the refresh all of the weights, or the shard under ZeRO 3 (tied_elements). Tensor axis: what the layers exchange
// (docs/algorithms/tensor-parallel.md). Calls in a group of one are none.
TrafficTable predict_traffic(const model::ParameterTable& table, const Layout& layout, const Batch& batch,
                             const RunInputs& inputs, int rank);

}  // namespace trireme::plan
