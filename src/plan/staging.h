#pragma once

// Memory that a rank's communicators stage sums in: each as much as the largest reduction that the rank's programs do
// over its group needs. Threads read their peers' buffers and stage nothing for the ordered algorithm.

#include <array>

#include "plan/exchanges.h"

namespace trireme::plan {

// Of one communicator; both parts are multiples of kAllocationAlignment.
struct GroupStaging {
  Bytes algorithm;  // staging_bytes(): of layout.all_reduce
  Bytes backend;    // message_staging_bytes(): of the reductions that the algorithm leaves to a backend over messages
  Bytes sum() const { return algorithm + backend; }
};

struct RankStaging {
  std::array<GroupStaging, std::size(kCommunicationGroups)> groups;
  GroupStaging& of(CommunicationGroup group) { return groups[static_cast<std::size_t>(group)]; }
  const GroupStaging& of(CommunicationGroup group) const { return groups[static_cast<std::size_t>(group)]; }
  Bytes sum() const;
};

RankStaging staging_of(const model::ParameterTable& table, const Layout& layout, const Batch& batch,
                       const RunInputs& inputs, int rank);

}  // namespace trireme::plan
