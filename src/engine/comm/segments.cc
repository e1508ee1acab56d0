#include "engine/comm/segments.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/units.h"
#include "engine/comm/reduce.h"

namespace trireme::comm {
namespace {

bool by_shares(Operation operation) {
  return operation == Operation::kReduceScatter || operation == Operation::kAllGather;
}

// Segments are cut within shares; all shares have as many.
struct Division {
  Division(const Call& call, int size)
      : shares(by_shares(call.operation) ? size : 1),
        elements(kSegmentBytes / dtype_size(call.dtype)),
        per_share(divide_up(divide_up(call.count, shares), elements)) {}

  int shares;
  std::int64_t elements;  // of a segment
  std::int64_t per_share;
};

void copy_to_others(const Call& call, std::span<std::byte* const> data, std::size_t source, Share share) {
  const std::int64_t element = dtype_size(call.dtype);
  const auto bytes = static_cast<std::size_t>((share.end - share.begin) * element);
  for (std::size_t i = 0; i < data.size(); ++i) {
    if (i != source) std::memcpy(data[i] + share.begin * element, data[source] + share.begin * element, bytes);
  }
}

}  // namespace

std::int64_t segments_of(const Call& call, int size) {
  if (call.operation == Operation::kBarrier || size == 1) return 0;
  const Division division(call, size);
  return division.shares * division.per_share;
}

void work_on_segment(const Call& call, std::span<std::byte* const> data, std::int64_t number) {
  const Division division(call, static_cast<int>(data.size()));
  const auto owner = static_cast<int>(number / division.per_share);
  Share share = share_of(call.count, owner, division.shares);
  share.begin += number % division.per_share * division.elements;
  share.end = std::min(share.begin + division.elements, share.end);
  if (share.begin >= share.end) return;
  const std::vector<const std::byte*> sources(data.begin(), data.end());
  switch (call.operation) {
    case Operation::kAllReduce:
      return reduce_in_order(call.dtype, call.reduction, sources, data, share);
    case Operation::kReduceScatter:
      return reduce_in_order(call.dtype, call.reduction, sources, data[static_cast<std::size_t>(owner)], share);
    case Operation::kAllGather:
      return copy_to_others(call, data, static_cast<std::size_t>(owner), share);
    case Operation::kBroadcast:
      return copy_to_others(call, data, static_cast<std::size_t>(call.root), share);
    case Operation::kSend:
    case Operation::kReceive:
      return copy_to_others(call, data, 0, share);
    case Operation::kBarrier:
      return;
  }
}

}  // namespace trireme::comm
