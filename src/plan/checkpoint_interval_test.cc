#include "plan/checkpoint_interval.h"

#include <cmath>
#include <numbers>

#include <gtest/gtest.h>

namespace trireme::plan {
namespace {

constexpr double kMinute = 60;
constexpr double kHour = 3600;
const FailureModel kExample{.cost = {3 * kMinute}, .mtbf = {50 * kHour}, .restart = {0}};

struct Row {
  double cost, mtbf, restart;
  double young, daly, exact, goodput;
};

class Published : public testing::TestWithParam<Row> {};

TEST_P(Published, ToThePrintedDigits) {
  const Row& row = GetParam();
  const FailureModel model{{row.cost}, {row.mtbf}, {row.restart}};
  EXPECT_NEAR(young_interval(model).count, row.young, 0.005);
  EXPECT_NEAR(daly_interval(model).count, row.daly, 0.005);
  EXPECT_NEAR(exact_interval(model).count, row.exact, 0.005);
  EXPECT_NEAR(goodput(model, exact_interval(model)), row.goodput, 0.000005);
}

INSTANTIATE_TEST_SUITE_P(Rows, Published,
                         testing::Values(Row{6.3, 11160, 300, 374.99, 370.80, 370.80, 0.94113},
                                         Row{60, 11160, 300, 1157.24, 1117.58, 1117.59, 0.87599},
                                         Row{148.8, 10800, 600, 1792.79, 1694.96, 1694.99, 0.79750},
                                         Row{600, 3600, 900, 2078.46, 1697.71, 1699.23, 0.41120},
                                         Row{0.2, 10800, 300, 65.73, 65.59, 65.59, 0.96670},
                                         Row{3600, 1800, 600, 3600, 1800, 1705.56, 0.03760}));

TEST(Waste, ThreeMinutesAndFiftyHours) {
  for (const auto& [minutes, percent] :
       {std::pair{15.0, 20.25}, std::pair{60.0, 6.0}, std::pair{240.0, 5.25}, std::pair{480.0, 8.625}}) {
    const Waste waste = waste_at(kExample, {minutes * kMinute});
    EXPECT_NEAR(100 * waste.waste_fraction, percent, 1e-9) << minutes;
    EXPECT_EQ(waste.waste_fraction, waste.checkpoint_fraction + waste.lost_fraction);
  }
  EXPECT_NEAR(waste_at(kExample, {15 * kMinute}).checkpoint_fraction, 0.2, 1e-12);
  EXPECT_NEAR(young_interval(kExample).count / kMinute, 134.2, 0.05);
}

TEST(Waste, SweptInSteps) {
  const Seconds best = swept_interval(kExample, {5 * kMinute});
  EXPECT_DOUBLE_EQ(best.count, 135 * kMinute);
  EXPECT_NEAR(100 * waste_at(kExample, best).waste_fraction, 4.47, 0.005);
  // A step beyond the optimum leaves one step.
  EXPECT_DOUBLE_EQ(swept_interval(kExample, {10 * kHour}).count, 10 * kHour);
  // No multiple is better than the one that the two neighbours gave.
  for (double step : {1.0, 7.0, 61.0, 999.0, 5000.0}) {
    const double chosen = waste_at(kExample, swept_interval(kExample, {step})).waste_fraction;
    for (int k = 1; k * step < 40000; ++k) {
      EXPECT_LE(chosen, waste_at(kExample, {k * step}).waste_fraction) << step << " x " << k;
    }
  }
}

TEST(Exact, IsTheLeastOfTheCompleteModel) {
  for (double cost : {0.001, 1.0, 180.0, 3600.0, 40000.0, 400000.0}) {
    const FailureModel model{{cost}, {20000}, {300}};
    const double best = exact_interval(model).count;
    const double at_best = goodput(model, {best});
    EXPECT_GE(at_best, goodput(model, {best * 1.001})) << cost;
    EXPECT_GE(at_best, goodput(model, {best * 0.999})) << cost;
    EXPECT_LE(best, model.mtbf.count);
  }
}

TEST(Exact, TinyCostsKeepTheirDigits) {
  // Young's is the limit; -exp(-1 - 1e-18) is already -1/e in a double.
  const FailureModel model{{1e-12}, {1e6}, {0}};
  EXPECT_NEAR(exact_interval(model).count / young_interval(model).count, 1, 1e-8);
}

TEST(LambertW0, SolvesItsEquation) {
  const double least = -1 / std::numbers::e;
  EXPECT_EQ(lambert_w0(0), 0);
  EXPECT_NEAR(lambert_w0(least), -1, 1e-7);  // the branch point: its slope is infinite
  for (double x : {least * (1 - 1e-12), least * 0.999, -0.3, -0.2, -0.1353, -0.1, -1e-3, -1e-10, -1e-300}) {
    const double w = lambert_w0(x);
    EXPECT_NEAR(w * std::exp(w) / x, 1, 1e-12) << x;
    EXPECT_GE(w, -1) << x;
  }
}

TEST(Goodput, FallsWithEveryCost) {
  const Seconds interval{7200};
  const double base = goodput({{60}, {36000}, {60}}, interval);
  EXPECT_GT(base, goodput({{120}, {36000}, {60}}, interval));
  EXPECT_GT(base, goodput({{60}, {36000}, {600}}, interval));
  EXPECT_GT(base, goodput({{60}, {3600}, {60}}, interval));
  EXPECT_EQ(goodput({{1e6}, {1}, {0}}, interval), 0);  // a job that never gets through one interval
}

TEST(Curve, EvenInTheLogarithm) {
  const std::vector<Waste> curve = waste_curve(kExample, {100}, {10000}, 3);
  ASSERT_EQ(curve.size(), 3U);
  EXPECT_DOUBLE_EQ(curve[0].interval.count, 100);
  EXPECT_NEAR(curve[1].interval.count, 1000, 1e-9);
  EXPECT_NEAR(curve[2].interval.count, 10000, 1e-9);
}

TEST(Checks, RefuseWhatHasNoAnswer) {
  EXPECT_THROW(young_interval({{0}, {1}, {0}}), InternalError);
  EXPECT_THROW(exact_interval({{1}, {-1}, {0}}), InternalError);
  EXPECT_THROW(goodput({{1}, {1}, {-1}}, {1}), InternalError);
  EXPECT_THROW(waste_at(kExample, {0}), InternalError);
  EXPECT_THROW(swept_interval(kExample, {0}), InternalError);
  EXPECT_THROW(lambert_w0(0.1), InternalError);
  EXPECT_THROW(waste_curve(kExample, {10}, {10}, 5), InternalError);
}

}  // namespace
}  // namespace trireme::plan
