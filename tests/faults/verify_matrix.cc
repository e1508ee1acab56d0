#include "faults/verify_matrix.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace trireme::testing {
namespace {

const std::vector<VerifyRun::Settings> kLayouts{
    {{"layout.dp", "2"}},
    {{"layout.tp", "2"}},
    {{"layout.tp", "3"}},
    {{"layout.dp", "2"}, {"layout.tp", "3"}, {"layout.pp", "2"}},
};

std::string describe(const train::Finding& finding) {
  return fmt::format("step {}: {} of {} {}: {:.3g} against {:.3g}", finding.step, finding.what, finding.tensor,
                     finding.unit, finding.difference, finding.bound);
}

}  // namespace

std::string name_of(const HealthyCase& healthy) {
  std::string name = healthy.family + " " + healthy.precision;
  for (const auto& [key, value] : healthy.layout) name += fmt::format(" {} {}", key.substr(key.find('.') + 1), value);
  return fmt::format("{}{} seed {}", name, healthy.from_folder ? " from a folder" : "", healthy.seed);
}

std::vector<HealthyCase> healthy_cases(const std::vector<int>& seeds) {
  std::vector<HealthyCase> cases;
  for (const char* family : {"gpt2", "llama", "relu"}) {
    for (const bool from_folder : {false, true}) {
      for (const int seed : seeds) {
        for (const char* precision : {"bf16", "fp16", "fp32"}) {
          for (const VerifyRun::Settings& layout : kLayouts) {
            cases.push_back({family, precision, layout, from_folder, seed});
          }
        }
      }
    }
  }
  return cases;
}

HealthyCount count_alarms(const std::vector<HealthyCase>& cases) {
  HealthyCount count;
  std::map<std::string, double> largest;  // by precision and what
  VerifyRun verify;
  std::set<std::string> folders;
  for (const HealthyCase& healthy : cases) {
    verify.use_config(VerifyRun::narrow_config(healthy.family));
    VerifyRun::Settings settings = healthy.layout;
    const std::string seed = std::to_string(healthy.seed);
    settings.emplace_back("train.precision", healthy.precision);
    settings.emplace_back("train.seed", seed);
    if (healthy.from_folder) {
      const std::string folder = healthy.family + seed;
      if (folders.insert(folder).second) verify.put_weights(folder, seed);
      settings.emplace_back("model.weights", folder);
    }
    const train::VerifyReport report = verify.report(settings);
    ++count.runs;
    if (report.verdict == train::Verdict::kDifferent) {
      ++count.alarms;
      ADD_FAILURE() << name_of(healthy) << ": " << describe(*report.first);
    }
    for (const train::Finding& finding : report.findings) {
      double& known = largest[healthy.precision + " " + finding.what];
      known = std::max(known, finding.ratio());
      if (finding.ratio() <= count.largest) continue;
      count.largest = finding.ratio();
      count.at = name_of(healthy) + ", " + describe(finding);
    }
  }
  for (const auto& [what, ratio] : largest) fmt::print("{:<20} at most {:.3f} of the bound\n", what, ratio);
  fmt::print("{} runs, {} alarms; nearest to its bound, at {:.3f} of it: {}\n", count.runs, count.alarms, count.largest,
             count.at);
  return count;
}

}  // namespace trireme::testing
