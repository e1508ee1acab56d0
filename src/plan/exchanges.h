#pragma once

// What a rank exchanges with others, one call of a communicator after the other: a walk over its program. Traffic and
// staging memory are read from it.

#include <cstdint>
#include <functional>
#include <vector>

#include "base/collective_bytes.h"
#include "plan/memory.h"

namespace trireme::plan {

using Collective = CollectiveKind;

// The communicators of a rank.
enum class CommunicationGroup { kTensor, kKvReplicas, kPipeline, kData };
inline constexpr CommunicationGroup kCommunicationGroups[] = {CommunicationGroup::kTensor,
                                                              CommunicationGroup::kKvReplicas,
                                                              CommunicationGroup::kPipeline, CommunicationGroup::kData};

Axis axis_of(CommunicationGroup group);  // that its traffic is of
std::vector<int> members_of(const model::Config& config, const Layout& layout, CommunicationGroup group, int rank);
// How its sums are formed.
ReduceAlgorithm algorithm_of(const Layout& layout, CommunicationGroup group);
// The numbers of the hosts of world ranks.
std::vector<int> hosts_of(const RunInputs& inputs, const std::vector<int>& ranks);

struct Exchange {
  CommunicationGroup group = CommunicationGroup::kTensor;
  Collective collective = Collective::kSend;
  std::int64_t count = 0;  // elements of the whole buffer
  std::int64_t element_bytes = 0;
  int index = 0;  // of the rank in the group
  int size = 1;   // at least 2: a group of one exchanges nothing
};
using VisitExchange = std::function<void(const Exchange&)>;

// Of a step, in its order but for the scalars. Receives are not listed.
void for_each_exchange(const model::ParameterTable& table, const Layout& layout, const Batch& batch,
                       const RunInputs& inputs, int rank, const VisitExchange& visit);
// Of the evaluation of a micro-batch.
void for_each_evaluation_exchange(const model::ParameterTable& table, const Layout& layout, const Batch& batch,
                                  const RunInputs& inputs, int rank, const VisitExchange& visit);

}  // namespace trireme::plan
