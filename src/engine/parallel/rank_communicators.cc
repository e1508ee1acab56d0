#include "engine/parallel/rank_communicators.h"

#include "engine/comm/recording.h"

namespace trireme::parallel {

RankCommunicators make_communicators(const comm::CommunicatorFactory& factory, const model::Config& config,
                                     const plan::Layout& layout, int rank, CommunicationRecords& records) {
  const auto make = [&](plan::Axis axis, std::vector<int> ranks) {
    const comm::GroupName name{std::string(plan::axis_name(axis)), std::move(ranks)};
    if (name.ranks.size() == 1) return comm::make_self_communicator(name.axis, rank);
    return comm::make_counting_communicator(
        comm::make_recording_communicator(
            comm::make_timing_communicator(factory(name), records.times, records.timeline.get()),
            records.last_operations),
        records.traffic);
  };
  RankCommunicators made;
  made.tensor = make(plan::Axis::kTensor, plan::process_group_of(layout, plan::Axis::kTensor, rank));
  made.pipeline = make(plan::Axis::kPipeline, plan::process_group_of(layout, plan::Axis::kPipeline, rank));
  made.data = make(plan::Axis::kData, plan::process_group_of(layout, plan::Axis::kData, rank));
  made.kv_replicas = make(plan::Axis::kTensor, plan::kv_replica_group_of(config, layout, rank));
  return made;
}

}  // namespace trireme::parallel
