#include "engine/train/rank_report.h"

#include <fmt/format.h>

#include "base/check.h"

namespace trireme::train {

std::string first_traffic_difference(const plan::TrafficTable& predicted,
                                     const std::vector<comm::TrafficCount>& counted) {
  plan::TrafficTable rest = predicted;
  for (const comm::TrafficCount& count : counted) {
    const auto same = [&](const auto& entry) {
      return plan::axis_name(entry.first.first) == count.axis &&
             collective_name(entry.first.second) == count.collective;
    };
    const auto found = std::find_if(rest.begin(), rest.end(), same);
    const plan::Traffic expected = found == rest.end() ? plan::Traffic{} : found->second;
    if (expected.calls != count.calls || expected.sent != count.sent) {
      return fmt::format("{} over {}: {} calls, {} bytes predicted; {} calls, {} bytes counted", count.collective,
                         count.axis, expected.calls, expected.sent.count, count.calls, count.sent.count);
    }
    rest.erase(found);
  }
  if (rest.empty()) return "";
  const auto& [key, traffic] = *rest.begin();
  return fmt::format("{} over {}: {} calls, {} bytes predicted; none counted", collective_name(key.second),
                     plan::axis_name(key.first), traffic.calls, traffic.sent.count);
}

RankReport make_rank_report(const parallel::Rank& rank, const std::vector<comm::TrafficCount>& last_step, Env& env) {
  const parallel::RunPlan& plan = rank.plan();
  const plan::TrafficTable predicted =
      plan::predict_traffic(plan.table, plan.layout, plan.batch, plan.inputs, plan.rank);
  RankReport report{.rank = plan.rank,
                    .host = env.host_name(),
                    .predicted_peak = rank.predicted().peak_sum(),
                    .counted_peak = rank.counted().peak_sum(),
                    .predicted_sent = {},
                    .counted_sent = {},
                    .resident = env.resident_memory().anonymous,
                    .ledger_fault = Ledger::first_difference(rank.predicted(), rank.counted()),
                    .traffic_fault = first_traffic_difference(predicted, last_step)};
  for (const auto& [key, traffic] : predicted) report.predicted_sent += traffic.sent;
  for (const comm::TrafficCount& count : last_step) report.counted_sent += count.sent;
  return report;
}

Json to_json(const RankReport& report) {
  return Json::object({{"rank", report.rank},
                       {"host", report.host},
                       {"predicted_peak_bytes", report.predicted_peak.count},
                       {"counted_peak_bytes", report.counted_peak.count},
                       {"predicted_sent_bytes", report.predicted_sent.count},
                       {"counted_sent_bytes", report.counted_sent.count},
                       {"resident_bytes", report.resident.count},
                       {"ledger_fault", report.ledger_fault},
                       {"traffic_fault", report.traffic_fault}});
}

RankReport rank_report_from_json(const Json& json) {
  const auto at = [&](const char* key) -> const Json& {
    const Json* value = json.find(key);
    TRIREME_CHECK(value != nullptr, "a rank's report lacks {}", key);
    return *value;
  };
  const auto bytes = [&](const char* key) { return Bytes{at(key).as_integer()}; };
  return {.rank = static_cast<int>(at("rank").as_integer()),
          .host = at("host").as_string(),
          .predicted_peak = bytes("predicted_peak_bytes"),
          .counted_peak = bytes("counted_peak_bytes"),
          .predicted_sent = bytes("predicted_sent_bytes"),
          .counted_sent = bytes("counted_sent_bytes"),
          .resident = bytes("resident_bytes"),
          .ledger_fault = at("ledger_fault").as_string(),
          .traffic_fault = at("traffic_fault").as_string()};
}

}  // namespace trireme::train
