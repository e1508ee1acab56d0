#include "engine/train/peak.h"

#include <vector>

#include <gtest/gtest.h>

#include "engine/train/test_small_run.h"

namespace trireme::train {
namespace {

TEST(PeakRate, AShareIsNeverAboveOne) {
  PeakRate peak(100, {0});
  EXPECT_EQ(peak.share(40, 1), 0.4);
  EXPECT_EQ(peak.share(100, 1), 1.0);
  EXPECT_EQ(peak.share(120, 1), std::nullopt);  // the machine was taken when it was measured
  EXPECT_EQ(peak.share(40, 1), std::nullopt);   // so what this is a share of is not known either
  EXPECT_FALSE(peak.known());
  peak.measured(110, {5}, {5.01});
  EXPECT_EQ(peak.share(55, 1), std::nullopt);
  peak.measured(200, {6}, {6.01});
  EXPECT_TRUE(peak.known());
  EXPECT_EQ(peak.share(120, 1), 0.6);
  peak.measured(50, {7}, {7.01});  // taken again: the best counts
  EXPECT_EQ(peak.flops_per_s(), 200);
  EXPECT_EQ(PeakRate(0, {0}).share(1, 1), std::nullopt);
}

// Ever more rarely, and little of the whole.
TEST(PeakRate, MeasurementsAreSpreadOverTheRun) {
  PeakRate peak(100, {0});
  EXPECT_FALSE(peak.due({0.5}));
  EXPECT_TRUE(peak.due({1}));
  int count = 0;
  constexpr double kCost = 0.05, kRun = 36000;
  for (double now = 0; now < kRun; now += 0.1) {
    if (!peak.due({now})) continue;
    peak.measured(100, {now}, {now + kCost});
    ++count;
  }
  EXPECT_GE(count, 10);
  EXPECT_LE(count, 20);
}

TEST(PeakRate, SoonerWhereItIsNotKnownButAtATwentiethOfTheTime) {
  PeakRate peak(100, {0});
  for (double now : {1.0, 10.0, 100.0}) peak.measured(100, {now}, {now + 0.01});
  EXPECT_FALSE(peak.due({102}));
  peak.share(150, 1);
  EXPECT_TRUE(peak.due({102}));
  peak.measured(100, {102}, {103});  // a slow machine: a second each
  EXPECT_FALSE(peak.due({110}));
  EXPECT_TRUE(peak.due({123}));
}

TEST(PeakRate, OfARun) {
  const auto shares = [](double flops_per_s) {
    SmallRun run;
    run.hooks.gemm_flops_per_s = flops_per_s;
    EXPECT_EQ(run.run().code, ExitCode::kDone);
    std::vector<std::optional<double>> all;
    for (const telemetry::StepRecord& step : telemetry::read_steps(run.env(), "out/metrics.jsonl")) {
      all.push_back(step.mfu);
    }
    return all;
  };
  for (const std::optional<double>& share : shares(1)) EXPECT_EQ(share, std::nullopt);  // as a machine that is taken
  const std::vector<std::optional<double>> known = shares(1e30);
  EXPECT_FALSE(known.empty());
  for (const std::optional<double>& share : known) EXPECT_TRUE(share && *share > 0 && *share < 1);
}

TEST(PeakRate, AClockThatStandsStillIsNeverDue) {
  PeakRate peak(100, {7});
  peak.share(1, 1e-9);
  EXPECT_FALSE(peak.due({7}));
}

}  // namespace
}  // namespace trireme::train
