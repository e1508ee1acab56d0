#pragma once

// A curve in the terminal: one line over a logarithmic x axis, both axes labelled, marks on the curve.

#include <string>
#include <vector>

namespace trireme::report {

struct PlotPoint {
  double x = 0;  // > 0
  double y = 0;
};

// A place on the plot. Marks that share a symbol share a line of the legend; one without a label is not listed there.
struct PlotMark {
  std::string symbol;  // one column wide
  PlotPoint at;
  std::string label;
};

struct PlotTick {
  double x = 0;
  std::string text;  // plain ASCII
};

struct Plot {
  std::string x_label;
  std::string y_label;
  std::string y_unit;                  // after each number of the y axis, e.g. " %"
  std::vector<PlotPoint> curve = {};   // x ascending, two points at least; as many as columns make it smooth
  std::vector<PlotMark> marks = {};    // a later one covers an earlier one
  std::vector<PlotTick> x_ticks = {};  // left out: those beside the curve, and texts that would touch the one before
  int width = 72;                      // columns in all
  int height = 15;                     // lines of the plot itself, about: as many as space the y ticks evenly
};

// UTF-8 text, the y label, the lines of the plot, then axis, ticks, x label and legend. The y axis starts at 0 and ends
// at a round number. Points outside are left out.
std::string draw_plot(const Plot& plot);

}  // namespace trireme::report
