#include "report/drill_table.h"

#include <algorithm>

#include <fmt/format.h>

namespace trireme::report {

double DrillRow::recovery_s() const {
  double sum = 0;
  for (const Part& part : recovery) sum += part.seconds;
  return sum;
}

std::string drill_table(const std::vector<DrillRow>& rows) {
  std::size_t fault = 5, detected = 11;
  std::vector<std::string> parts;  // in the order of the first row that has them
  for (const DrillRow& row : rows) {
    fault = std::max(fault, row.fault.size());
    detected = std::max(detected, row.detected_as.size());
    if (parts.empty()) {
      for (const DrillRow::Part& part : row.recovery) parts.push_back(part.name);
    }
  }
  std::string text = fmt::format("{:<{}}  {:<{}}  {:>7}  {:>5}  {:>8}", "fault", fault, "detected as", detected,
                                 "after", "lost", "recovery");
  for (const std::string& part : parts) text += fmt::format("  {:>6}", part);
  text += "  exit  loss curve\n";
  for (const DrillRow& row : rows) {
    const bool recovers = !row.recovery.empty();
    text += fmt::format(
        "{:<{}}  {:<{}}  {:>7}  {:>5}  {:>8}", row.fault, fault, row.detected_as.empty() ? "-" : row.detected_as,
        detected, row.detected_as.empty() ? "" : fmt::format("{:.2f} s", row.detected_after_s),
        recovers ? fmt::format("{}", row.steps_lost) : "", recovers ? fmt::format("{:.2f} s", row.recovery_s()) : "");
    for (std::size_t i = 0; i < parts.size(); ++i) {
      text += recovers ? fmt::format("  {:>6.2f}", row.recovery[i].seconds) : fmt::format("  {:>6}", "");
    }
    const char* curve = !row.curve_equal ? "-" : *row.curve_equal ? "equal" : "DIFFERS";
    text += fmt::format("  {:>4}{} {}{}\n", row.exit_code, row.exit_as_expected ? " " : "!", curve,
                        row.remark.empty() ? "" : "  " + row.remark);
  }
  return text;
}

Json drill_json(const std::vector<DrillRow>& rows) {
  Json list = Json::array();
  for (const DrillRow& row : rows) {
    Json recovery = Json::object();
    for (const DrillRow::Part& part : row.recovery) recovery[part.name + "_s"] = part.seconds;
    Json json = Json::object({{"fault", row.fault},
                              {"detected_as", row.detected_as},
                              {"detected_after_s", row.detected_after_s},
                              {"steps_lost", row.steps_lost},
                              {"recovery", recovery},
                              {"recovery_s", row.recovery_s()},
                              {"exit_code", static_cast<std::int64_t>(row.exit_code)},
                              {"exit_as_expected", row.exit_as_expected},
                              {"remark", row.remark}});
    if (row.curve_equal) json["curve_equal"] = *row.curve_equal;
    list.push_back(json);
  }
  return Json::object({{"faults", list}});
}

}  // namespace trireme::report
