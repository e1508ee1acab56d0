#pragma once

#include <cstddef>
#include <vector>

#include "collectives/rounds.h"
#include "engine/comm/communicator.h"

namespace trireme::bench {

// Our operation in place on a buffer that outlives it.
inline Way our_way(comm::Communicator& communicator, std::vector<float>& buffer, Kind kind) {
  auto* data = reinterpret_cast<std::byte*>(buffer.data());
  const auto count = static_cast<std::int64_t>(buffer.size());
  const auto meet = [&communicator] { communicator.barrier(); };
  switch (kind) {
    case Kind::kAllReduce:
      return {meet, [&communicator, data, count] {
                communicator.all_reduce({}, data, count, DType::kF32, comm::Reduction::kSum)->wait();
              }};
    case Kind::kAllGather:
      return {meet, [&communicator, data, count] { communicator.all_gather({}, data, count, DType::kF32)->wait(); }};
    case Kind::kReduceScatter:
      return {meet,
              [&communicator, data, count] { communicator.reduce_scatter({}, data, count, DType::kF32)->wait(); }};
  }
  return {};
}

}  // namespace trireme::bench
