#include "report/plot.h"

#include <cmath>

#include <gtest/gtest.h>

#include "base/error.h"

namespace trireme::report {
namespace {

// 10 / x + x / 10: its least, 2, lies at x = 10.
Plot valley() {
  Plot plot{.x_label = "x, log scale", .y_label = "cost", .y_unit = " %"};
  for (int i = 0; i <= 100; ++i) {
    const double x = std::pow(10.0, i / 50.0);
    plot.curve.push_back({x, 10 / x + x / 10});
  }
  plot.marks = {{"o", {2, 5.2}, ""}, {"*", {10, 2}, "best 10"}, {"*", {11, 2.01}, "near 11"}};
  plot.x_ticks = {{0.5, "out"}, {1, "1"}, {2, "2"}, {2.05, "touches"}, {10, "10"}, {100, "100"}, {1000, "out"}};
  plot.width = 48;
  plot.height = 11;
  return plot;
}

TEST(Plot, Golden) {
  EXPECT_EQ(draw_plot(valley()),
            R"(cost
12 % ┤
     │
10 % ┤─╮                                       ╭
     │ ╰╮                                     ╭╯
 8 % ┤  ╰╮                                   ╭╯
     │   ╰─╮                               ╭─╯
 6 % ┤     ╰╮                             ╭╯
     │      o─╮                         ╭─╯
 4 % ┤        ╰──╮                   ╭──╯
     │           ╰───╮           ╭───╯
 2 % ┤               ╰─────*─────╯
     │
 0 % ┤
     └┬─────┬──────────────┬───────────────────┬
      1     2             10                 100
                                    x, log scale
      * best 10, near 11
)");
}

TEST(Plot, MarksOutsideAreLeftOut) {
  Plot plot = valley();
  const std::string before = draw_plot(plot);
  plot.marks.push_back({"X", {0.1, 3}, ""});
  plot.marks.push_back({"X", {10, 300}, ""});
  plot.marks.push_back({"X", {-1, 1}, ""});
  EXPECT_EQ(draw_plot(plot), before);
}

TEST(Plot, StepsOfTheYAxisAreRound) {
  for (const auto& [most, top] : {std::pair{0.9, "1.0 "}, std::pair{1.0, "1.0 "}, std::pair{4.3, "5 "},
                                  std::pair{23.0, "25 "}, std::pair{61.0, "80 "}, std::pair{0.011, "0.012 "}}) {
    Plot plot{.x_label = "x", .y_label = "y", .y_unit = ""};
    plot.curve = {{1, most}, {10, 0}};
    EXPECT_EQ(draw_plot(plot).substr(2, std::string(top).size()), top) << most;
  }
}

TEST(Plot, RefusesWhatCannotBeDrawn) {
  Plot plot = valley();
  plot.curve = {{1, 1}};
  EXPECT_THROW(draw_plot(plot), InternalError);
  plot.curve = {{0, 1}, {1, 1}};
  EXPECT_THROW(draw_plot(plot), InternalError);
  plot.curve = {{1, 0}, {2, 0}};
  EXPECT_THROW(draw_plot(plot), InternalError);
  plot = valley();
  plot.width = 5;
  EXPECT_THROW(draw_plot(plot), InternalError);
}

}  // namespace
}  // namespace trireme::report
