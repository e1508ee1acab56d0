#pragma once

// What a rank has to say at the end of a run: law 1, predicted and counted, in a form that travels.

#include <string>

#include "base/json.h"
#include "engine/comm/counting.h"
#include "engine/parallel/rank.h"
#include "plan/traffic.h"

namespace trireme::train {

struct RankReport {
  int rank = 0;
  std::string host;
  Bytes predicted_peak;  // of the ledger's sum
  Bytes counted_peak;
  Bytes predicted_sent;       // in a step
  Bytes counted_sent;         // in the last step
  Bytes resident;             // of its process: anonymous and shared-memory pages
  std::string ledger_fault;   // the first class whose peak is not the predicted one; "": none
  std::string traffic_fault;  // the first axis and collective whose calls or bytes are not; "": none
};

// last_step: what the rank's counters said after the last step.
RankReport make_rank_report(const parallel::Rank& rank, const std::vector<comm::TrafficCount>& last_step, Env& env);

// "" if calls and bytes by axis and collective are equal, else the first difference in words.
std::string first_traffic_difference(const plan::TrafficTable& predicted,
                                     const std::vector<comm::TrafficCount>& counted);

Json to_json(const RankReport& report);
RankReport rank_report_from_json(const Json& json);  // of to_json's; anything else is an InternalError

}  // namespace trireme::train
