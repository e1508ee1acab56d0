#include "engine/parallel/rank_communicators.h"

#include "base/check.h"
#include "engine/comm/algorithm.h"
#include "engine/comm/recording.h"

namespace trireme::parallel {
namespace {

// The first `bytes` of what is left.
std::span<std::byte> cut(std::span<std::byte>& rest, Bytes bytes) {
  const auto size = static_cast<std::size_t>(bytes.count);
  const std::span<std::byte> part = rest.first(size);
  rest = rest.subspan(size);
  return part;
}

}  // namespace

RankCommunicators make_communicators(const comm::CommunicatorFactory& factory, const RunPlan& plan,
                                     const plan::RankStaging& sizes, std::span<std::byte> staging,
                                     CommunicationRecords& records) {
  TRIREME_CHECK_EQ(std::ssize(staging), sizes.sum().count);
  const auto make = [&](plan::CommunicationGroup group) {
    const comm::GroupName name{std::string(plan::axis_name(plan::axis_of(group))),
                               plan::members_of(plan.table.config, plan.layout, group, plan.rank)};
    if (name.ranks.size() == 1) return comm::make_self_communicator(name.axis, plan.rank);
    const ReduceAlgorithm algorithm = plan::algorithm_of(plan.layout, group);
    const std::vector<int> hosts = plan::hosts_of(plan.inputs, name.ranks);
    const std::span<std::byte> of_algorithm = cut(staging, sizes.of(group).algorithm);
    std::unique_ptr<comm::Communicator> made =
        comm::make_algorithm_communicator(factory(name, {.staging = cut(staging, sizes.of(group).backend),
                                                         .library_sums = algorithm == ReduceAlgorithm::kLibrary}),
                                          algorithm, hosts, of_algorithm);
    return comm::make_counting_communicator(
        comm::make_recording_communicator(
            comm::make_timing_communicator(std::move(made), records.times, records.timeline.get()),
            records.last_operations),
        records.traffic, algorithm, hosts);
  };
  RankCommunicators made;
  made.tensor = make(plan::CommunicationGroup::kTensor);
  made.pipeline = make(plan::CommunicationGroup::kPipeline);
  made.data = make(plan::CommunicationGroup::kData);
  made.kv_replicas = make(plan::CommunicationGroup::kKvReplicas);
  return made;
}

}  // namespace trireme::parallel
