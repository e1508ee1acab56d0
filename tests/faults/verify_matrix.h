#pragma once

// Healthy layouts of small models, on which `verify` must raise no alarm: model, precision, layout, start, seed.

#include <string>
#include <vector>

#include "support/verify_run.h"

namespace trireme::testing {

struct HealthyCase {
  std::string family;  // VerifyRun::narrow_config
  std::string precision;
  VerifyRun::Settings layout;
  bool from_folder = false;
  int seed = 1;
};
std::string name_of(const HealthyCase& healthy);

// Of all families, precisions, layouts and starts.
std::vector<HealthyCase> healthy_cases(const std::vector<int>& seeds);

struct HealthyCount {
  int runs = 0, alarms = 0;
  double largest = 0;  // difference over bound of anything
  std::string at;      // where that was
};
// Runs them, telling of each alarm as a test's failure; prints the largest of each kind of finding.
HealthyCount count_alarms(const std::vector<HealthyCase>& cases);

}  // namespace trireme::testing
