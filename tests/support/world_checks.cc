#include "support/world_checks.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

namespace trireme::testing {
namespace {

double norm(const std::vector<double>& values) {
  double sum = 0;
  for (double v : values) sum += v * v;
  return std::sqrt(sum);
}

}  // namespace

void expect_as_planned(const WorldCurve& curve, const std::string& what) {
  for (std::size_t rank = 0; rank < curve.ranks.size(); ++rank) {
    const RankReport& report = curve.ranks[rank];
    EXPECT_EQ(Ledger::first_difference(report.predicted, report.counted), "") << what << ", rank " << rank;
    std::vector<comm::TrafficCount> predicted;
    for (const auto& [key, traffic] : report.predicted_traffic) {
      if (traffic.calls == 0) continue;
      predicted.push_back({.axis = std::string(plan::axis_name(key.first)),
                           .collective = std::string(collective_name(key.second)),
                           .calls = traffic.calls,
                           .sent = traffic.sent});
    }
    std::ranges::sort(predicted, {}, [](const comm::TrafficCount& c) { return std::pair(c.axis, c.collective); });
    ASSERT_EQ(predicted.size(), report.counted_traffic.size()) << what << ", rank " << rank;
    for (std::size_t i = 0; i < predicted.size(); ++i) {
      EXPECT_EQ(predicted[i], report.counted_traffic[i])
          << what << ", rank " << rank << ": " << predicted[i].axis << " " << predicted[i].collective << " predicted "
          << predicted[i].calls << " calls " << predicted[i].sent.count << " bytes, counted "
          << report.counted_traffic[i].calls << " calls " << report.counted_traffic[i].sent.count;
    }
  }
}

bool same_weights(const WorldCurve& a, const WorldCurve& b) {
  return std::ranges::equal(a.tensors, b.tensors, [](const auto& x, const auto& y) {
    return x.first == y.first && x.second.weight == y.second.weight;
  });
}

double worst_difference(const WorldCurve& a, const WorldCurve& b) {
  double global = 0;
  for (const auto& [name, values] : a.tensors) global += norm(values.gradient) * norm(values.gradient);
  double worst = 0;
  for (const auto& [name, tensor] : a.tensors) {
    const std::vector<double>& values = tensor.gradient;
    std::vector<double> difference = values;
    const std::vector<double>& other = b.tensors.at(name).gradient;
    for (std::size_t i = 0; i < difference.size(); ++i) difference[i] -= other[i];
    worst = std::max(worst, norm(difference) / std::max(norm(values), 1e-6 * std::sqrt(global)));
  }
  return worst;
}

}  // namespace trireme::testing
