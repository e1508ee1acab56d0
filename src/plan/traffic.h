#pragma once

// Predicted traffic of a rank: the bytes that it sends in a step, by axis and collective; a walk over its program. Law
// 1: the communicator's counters agree with it to the byte.

#include <cstdint>
#include <map>
#include <string_view>
#include <utility>

#include "plan/memory.h"

namespace trireme::plan {

enum class Collective { kSend, kAllReduce, kReduceScatter, kAllGather };
std::string_view collective_name(Collective collective);

struct Traffic {
  std::int64_t calls = 0;
  Bytes sent;
};
using TrafficTable = std::map<std::pair<Axis, Collective>, Traffic>;

// Bytes that group member `index` of `size` sends for one collective over `count` elements. Direct reduce-scatter: to
// each other member that member's share. Ring all-gather: every share but its successor's. All-reduce: the one, then
// the other. Shares are [i n / N, (i + 1) n / N), so a sum over all members is (N - 1) n for each of the two (2 (N -
// 1) n for an all-reduce: the ring's bytes).
Bytes collective_bytes(Collective collective, std::int64_t count, std::int64_t element_bytes, int index, int size);

// One step. Tied embeddings over stages: the sum moves the copy's gradient as far as this rank's accumulator is
// complete, so all of it, or the shard under ZeRO >= 1; the refresh all of the weights, or the shard under ZeRO 3
// (tied_elements). Tensor axis: what the layers exchange (docs/algorithms/tensor-parallel.md). Calls in a group of one
// are none.
TrafficTable predict_traffic(const model::ParameterTable& table, const Layout& layout, const Batch& batch,
                             const RunInputs& inputs, int rank);

}  // namespace trireme::plan
