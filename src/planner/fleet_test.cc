#include "planner/fleet.h"

#include <cmath>

#include <gtest/gtest.h>

namespace trireme::planner {
namespace {

constexpr double kDay = 86400;
const Fleet kFleet{.devices = 4000, .device_mtbf = {3 * 365.25 * kDay}, .duration = {21 * kDay}};

TEST(Fleet, FourThousandDevicesForThreeWeeks) {
  const FleetForecast forecasted = forecast(kFleet, {180}, {600});
  EXPECT_NEAR(forecasted.job_mtbf.count / 3600, 6.57, 0.005);
  EXPECT_NEAR(forecasted.failures, 77, 0.5);
  EXPECT_NEAR(forecasted.no_failure, std::exp(-forecasted.failures), 1e-300);
}

TEST(Fleet, GoodputIsThatOfTheCheckpointModel) {
  const FleetForecast forecasted = forecast(kFleet, {180}, {600});
  const plan::FailureModel model{{180}, forecasted.job_mtbf, {600}};
  EXPECT_EQ(forecasted.interval, plan::exact_interval(model));
  EXPECT_EQ(forecasted.goodput, plan::goodput(model, forecasted.interval));
  EXPECT_DOUBLE_EQ(forecasted.wall.count * forecasted.goodput, kFleet.duration.count);
}

TEST(Fleet, RatesAdd) {
  Fleet twice = kFleet;
  twice.devices *= 2;
  EXPECT_DOUBLE_EQ(forecast(twice, {180}, {0}).failures, 2 * forecast(kFleet, {180}, {0}).failures);
}

TEST(Fleet, AJobFailsAsOftenAsItsDevicesTogether) {
  EXPECT_DOUBLE_EQ(job_mtbf({50677 * 3600.0}, 16384).count, 50677 * 3600.0 / 16384);
  EXPECT_EQ(job_mtbf({7}, 1).count, 7);
  EXPECT_THROW(job_mtbf({7}, 0), InternalError);
}

TEST(Fleet, HopelessFleetsHaveNoEnd) {
  const FleetForecast forecasted =
      forecast({.devices = 1000000000, .device_mtbf = {1e8}, .duration = {1e6}}, {180}, {});
  EXPECT_EQ(forecasted.goodput, 0);
  EXPECT_TRUE(std::isinf(forecasted.wall.count));
}

TEST(Fleet, ChecksItsInput) {
  EXPECT_THROW(forecast({.devices = 0, .device_mtbf = {1}, .duration = {1}}, {1}, {}), InternalError);
  EXPECT_THROW(forecast({.devices = 1, .device_mtbf = {1}, .duration = {0}}, {1}, {}), InternalError);
  EXPECT_THROW(forecast({.devices = 1, .device_mtbf = {0}, .duration = {1}}, {1}, {}), InternalError);
}

}  // namespace
}  // namespace trireme::planner
