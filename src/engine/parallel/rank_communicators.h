#pragma once

// The process groups that a rank belongs to, as communicators, each counting what the rank sends.

#include <memory>

#include "engine/comm/counting.h"
#include "engine/comm/timing.h"
#include "engine/parallel/run_plan.h"
#include "plan/staging.h"
#include "telemetry/flight_recorder.h"
#include "telemetry/timeline.h"

namespace trireme::parallel {

struct RankCommunicators {
  std::unique_ptr<comm::Communicator> tensor;
  std::unique_ptr<comm::Communicator> pipeline;  // index: the stage
  std::unique_ptr<comm::Communicator> data;
  std::unique_ptr<comm::Communicator>
      kv_replicas;  // tensor ranks that hold the same key/value heads; of the tensor axis
};

// What looks on while a rank communicates.
struct CommunicationRecords {
  std::unique_ptr<telemetry::Timeline> timeline = nullptr;  // of all that the rank does; null: not asked for
  comm::TrafficCounters traffic = {};
  comm::CommunicationTimes times = {};
  telemetry::FlightRecorder last_operations{256};
};

// Groups of one wherever a degree is 1; the others from `factory`, the data axis's with the layout's algorithm.
// staging: memory of sizes.sum(), which is cut among them. It and `records` outlive them.
RankCommunicators make_communicators(const comm::CommunicatorFactory& factory, const RunPlan& plan,
                                     const plan::RankStaging& sizes, std::span<std::byte> staging,
                                     CommunicationRecords& records);

}  // namespace trireme::parallel
