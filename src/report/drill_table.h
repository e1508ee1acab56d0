#pragma once

// What a drill has shown: each fault, what the supervisor made of it, what it cost.

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"

namespace trireme::report {

struct DrillRow {
  std::string fault;        // "kill in backward"
  std::string detected_as;  // "died: rank 3"; "": nothing was
  double detected_after_s = 0;
  std::int64_t steps_lost = 0;
  struct Part {
    std::string name;
    double seconds = 0;
  };
  std::vector<Part> recovery;  // parts of the time to the next step that was never done before; empty: no recovery
  int exit_code = 0;
  bool exit_as_expected = true;
  std::optional<bool> curve_equal;  // none: the run is not one that goes on to its end
  std::string remark;

  double recovery_s() const;
  bool planted = true;  // into the run, so that something must be detected
  bool well() const { return exit_as_expected && curve_equal.value_or(true) && !(planted && detected_as.empty()); }
};

std::string drill_table(const std::vector<DrillRow>& rows);
Json drill_json(const std::vector<DrillRow>& rows);

}  // namespace trireme::report
